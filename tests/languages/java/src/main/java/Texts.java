import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** The patterns of a case: evaluates its texts, and compares replies and messages with them. */
final class Texts {
  private static final Pattern KEY = Pattern.compile("@(\\w+)(?::(\\w+))?");

  /** Digits alone are a pattern too, because some cases have a number as a text. */
  private static final Pattern PATTERN = Pattern.compile("[$*<>].*|\\d+(\\.\\..*)?");

  private static final Pattern COMPARISON =
      Pattern.compile("(?<sign>[<>]=?)?(?<from>.+?)(\\.\\.(?<to>.+))?");
  private static final Pattern TERM = Pattern.compile("([+-]?)(\\$?\\w+)");

  /** The least and the most that a number may be. */
  private record Range(long least, long most) {}

  final String prefix = "conformance:" + UUID.randomUUID();
  private final Map<String, Object> names = new HashMap<>();
  private Range now = new Range(0, 0);

  /** Unbinds the name, until the next reply binds it. */
  void forgetNow() {
    names.remove("now");
  }

  /** The server's time around a call. */
  void setNow(long least, long most) {
    now = new Range(least, most);
  }

  /** Binds the names that are not bound yet. */
  void bind(JsonElement expected, Object got) {
    if (expected.isJsonArray() && got instanceof List<?> list) {
      for (int i = 0; i < Math.min(expected.getAsJsonArray().size(), list.size()); i++) {
        bind(expected.getAsJsonArray().get(i), list.get(i));
      }
    } else if (isPattern(expected)) {
      for (String word : expected.getAsString().split(" ")) {
        if (word.matches("\\$\\w+") && (!word.equals("$now") || fits(word, got, 0))) {
          names.putIfAbsent(word.substring(1), got);
        }
      }
    }
  }

  private static boolean isPattern(JsonElement expected) {
    return expected.isJsonPrimitive() && PATTERN.matcher(expected.getAsString()).matches();
  }

  boolean fits(JsonElement expected, Object got, long tolerance) {
    if (expected.isJsonArray()) {
      var elements = expected.getAsJsonArray();
      return got instanceof List<?> list
          && list.size() == elements.size()
          && IntStream.range(0, list.size())
              .allMatch(i -> fits(elements.get(i), list.get(i), tolerance));
    }
    if (expected instanceof JsonObject object && object.has("length")) {
      return got instanceof List<?> list && list.size() == object.get("length").getAsInt();
    }
    if (isPattern(expected)) {
      var words = Stream.of(expected.getAsString().split(" "));
      return words.allMatch(word -> fits(word, got, tolerance));
    }
    boolean isNumber = expected instanceof JsonPrimitive primitive && primitive.isNumber();
    return got.equals(isNumber ? (Object) expected.getAsLong() : text(bytes(expected)));
  }

  private boolean fits(String word, Object got, long tolerance) {
    if (word.equals("*") || got.equals(names.get(word.substring(1)))) { // a name without its $
      return true;
    }
    if (!(got instanceof Long number)) {
      return false;
    }
    Matcher parts = COMPARISON.matcher(word);
    parts.matches();
    long least = sum(parts.group("from")).least - tolerance;
    long most = sum(parts.group(parts.group("to") == null ? "from" : "to")).most + tolerance;
    return switch (String.valueOf(parts.group("sign"))) {
      case "<" -> number < most;
      case "<=" -> number <= most;
      case ">" -> number > least;
      case ">=" -> number >= least;
      default -> least <= number && number <= most;
    };
  }

  private Range sum(String text) {
    Range sum = new Range(0, 0);
    for (Matcher term = TERM.matcher(text); term.find(); ) {
      Range value = term(term.group(2));
      sum =
          term.group(1).equals("-")
              ? new Range(sum.least - value.most, sum.most - value.least)
              : new Range(sum.least + value.least, sum.most + value.most);
    }
    return sum;
  }

  private Range term(String term) {
    if (term.equals("$us")) {
      Range ms = term("$now");
      return new Range(ms.least * 1000, ms.most * 1000);
    }
    if (term.equals("$now") && !names.containsKey("now")) {
      return now;
    }
    long value = term.startsWith("$") ? (Long) names.get(term.substring(1)) : Long.parseLong(term);
    return new Range(value, value);
  }

  /** Replaces each {@code @kind:name} in a text by its key or channel. */
  String keys(String text) {
    return KEY.matcher(text)
        .replaceAll(
            key -> {
              String name = key.group(2) == null ? "m" : key.group(2);
              return prefix + ":" + key.group(1) + ":{x}:" + name;
            });
  }

  List<byte[]> list(JsonElement texts) {
    return values(texts).stream().map(this::bytes).toList();
  }

  byte[] bytes(JsonElement text) {
    if (text instanceof JsonObject object) {
      return object.has("hex")
          ? HexFormat.of().parseHex(object.get("hex").getAsString())
          : object.get("long").getAsString().repeat(object.get("times").getAsInt()).getBytes(UTF_8);
    }
    String plain = text.getAsString();
    return (plain.startsWith("$") ? "" + sum(plain).least : keys(plain)).getBytes(UTF_8);
  }

  /** The values of a list, the numbers from 1 to n as texts, or the one value. */
  static List<JsonElement> values(JsonElement each) {
    if (each.isJsonArray()) {
      return each.getAsJsonArray().asList();
    }
    if (each.getAsJsonPrimitive().isString()) {
      return List.of(each);
    }
    return IntStream.rangeClosed(1, each.getAsInt())
        .mapToObj(n -> (JsonElement) new JsonPrimitive("" + n))
        .toList();
  }

  static String text(byte[] bytes) {
    return new String(bytes, ISO_8859_1);
  }
}
