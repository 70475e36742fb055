package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The names of semaphores and locks. */
final class Name {
  private static final int LONGEST = 200; // bytes
  private static final int LONGEST_GROUP = 100;

  /** A name with a group, which is its hash tag. */
  private static final Pattern GROUPED = Pattern.compile("\\{([^{}]+)\\}:[^{}]+");

  /** A text that begins with a group. */
  private static final Pattern GROUP = Pattern.compile("(\\{([^{}]+)\\}:)(.*)", Pattern.DOTALL);

  private Name() {}

  /** Throws an InvalidException. */
  static void check(String name) {
    String remedy = ". Luagate.nameFrom makes a valid name from any text";
    Settings.check(
        Settings.isWord(name, LONGEST),
        "name",
        Settings.quoted(name),
        Settings.accepted(LONGEST) + remedy);
    Settings.check(
        hasValidBraces(name),
        "name",
        Settings.quoted(name),
        "braces only around a group, as in {group}:name" + remedy);
  }

  private static boolean hasValidBraces(String name) {
    return GROUPED.matcher(name).matches() || !name.contains("{") && !name.contains("}");
  }

  /** The same text has the same name in all languages. */
  static String from(String text) {
    Settings.check(
        text != null && UTF_8.newEncoder().canEncode(text),
        "nameFrom",
        Settings.quoted(text),
        "a text that UTF-8 can encode");
    if (Settings.isWord(text, LONGEST) && hasValidBraces(text)) {
      return text;
    }
    Matcher grouped = GROUP.matcher(text);
    boolean hasGroup = grouped.matches() && Settings.isWord(grouped.group(2), LONGEST_GROUP);
    String end = "~" + Scripts.sha1(text);
    var made = new StringBuilder(hasGroup ? grouped.group(1) : "");
    int bytes = made.toString().getBytes(UTF_8).length;
    for (int c : (hasGroup ? grouped.group(3) : text).codePoints().toArray()) {
      String allowed = allowed(Character.toString(c));
      bytes += allowed.getBytes(UTF_8).length;
      if (bytes + end.length() > LONGEST) {
        break;
      }
      made.append(allowed);
    }
    return made + end;
  }

  private static String allowed(String character) {
    return switch (character) {
      case "{" -> "(";
      case "}" -> ")";
      default -> Settings.isWord(character, LONGEST) ? character : "_";
    };
  }
}
