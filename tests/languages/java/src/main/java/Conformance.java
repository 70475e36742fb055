import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import luagate.Scripts;
import luagate.Scripts.Script;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.JedisURIHelper;

/** One run of a case. Bytes that come from the server are kept as text, a character for each. */
public final class Conformance implements AutoCloseable {
  private static final Pattern KEY = Pattern.compile("@(\\w+)(?::(\\w+))?");
  private static final Pattern PATTERN = Pattern.compile("[$*<>].*|\\d+(\\.\\..*)?");
  private static final Pattern NAME = Pattern.compile("\\$(\\w+)");
  private static final Pattern RANGE = Pattern.compile("([<>]=?)?(.+?)(?:\\.\\.(.+))?");
  private static final Pattern TERM = Pattern.compile("([+-]?)(?:\\$(\\w+)|(\\d+))");

  /** What a number is known to lie between. */
  private record Range(long least, long most) {}

  /** What a key holds, and when it ends. */
  private record State(Object value, long end) {}

  /** What came of a step is not what had to. */
  private static final class Mismatch extends Exception {
    Mismatch(Object step, Object expected, Object got) {
      super(step + ": expected " + expected + ", got " + got);
    }
  }

  private final RedisClient redis;
  private final Scripts scripts;
  private final Connection subscriber;
  private final String prefix = "conformance:" + UUID.randomUUID();
  private final Map<String, Object> names = new HashMap<>();
  private final Map<String, Queue<String>> unread = new HashMap<>();
  private Range now; // of the last call
  private long pausedMs;

  /** {@code URL CASES LUA}: runs the cases of a folder, on a server that nobody else uses. */
  public static void main(String[] args) throws Exception {
    int passed = 0;
    int failed = 0;
    try (var redis = RedisClient.create(args[0]);
        var files = Files.newDirectoryStream(Path.of(args[1]), "*.json")) {
      var scripts = new Scripts(redis, Path.of(args[2]));
      for (Path file : files) {
        for (JsonElement test : JsonParser.parseString(Files.readString(file)).getAsJsonArray()) {
          String failure = failure(redis, scripts, URI.create(args[0]), test.getAsJsonObject());
          if (failure == null) {
            passed++;
          } else {
            failed++;
            System.out.println(file.getFileName() + ": " + failure);
          }
        }
      }
    }
    System.out.println(passed + " passed, " + failed + " failed");
    System.exit(failed == 0 && passed > 0 ? 0 : 1);
  }

  /** How a case failed, or null. A run that failed and was slow says nothing, and is made again. */
  private static String failure(RedisClient redis, Scripts scripts, URI url, JsonObject test)
      throws Exception {
    long slackMs = test.has("slack_ms") ? test.get("slack_ms").getAsLong() : 20;
    for (int runs = 1; ; runs++) {
      long began = System.nanoTime();
      try (var run = new Conformance(redis, scripts, url)) {
        try {
          run.steps(test.get("steps"));
          for (String channel : run.unread.keySet()) {
            run.silence(test, channel);
          }
          return null;
        } catch (Mismatch mismatch) {
          long tookMs = (System.nanoTime() - began) / 1_000_000 - run.pausedMs;
          if (tookMs <= slackMs || runs == 100) {
            return test.get("name").getAsString() + ": " + mismatch.getMessage();
          }
        }
      }
    }
  }

  private Conformance(RedisClient redis, Scripts scripts, URI url) {
    this.redis = redis;
    this.scripts = scripts;
    var config = DefaultJedisClientConfig.builder().resp2().build();
    subscriber = new Connection(JedisURIHelper.getHostAndPort(url), config);
  }

  @Override
  public void close() {
    subscriber.close();
    full(false);
    redis.keys(prefix + ":*").forEach(redis::del);
  }

  private void steps(JsonElement steps) throws Exception {
    for (JsonElement element : steps.getAsJsonArray()) {
      JsonObject step = element.getAsJsonObject();
      if (step.has("call")) {
        call(step);
      } else if (step.has("subscribe")) {
        subscribe(bytes(step.get("subscribe")));
      } else if (step.has("unsubscribe")) {
        unsubscribe(step, bytes(step.get("unsubscribe")));
      } else if (step.has("message")) {
        message(step);
      } else if (step.has("silence")) {
        silence(step, text(bytes(step.get("silence"))));
      } else if (step.has("pause_ms")) {
        Thread.sleep(step.get("pause_ms").getAsLong());
        pausedMs += step.get("pause_ms").getAsLong();
      } else if (step.has("ends")) {
        for (var end : step.getAsJsonObject("ends").entrySet()) {
          expect(step, end.getValue(), end(keys(end.getKey()).getBytes(UTF_8)), 2);
        }
      } else if (step.has("command")) {
        command(step);
      } else if (step.has("full")) {
        full(step.get("full").getAsBoolean());
      } else {
        for (JsonElement value : values(step.get("each"))) {
          steps(fill(step.get("steps"), value));
        }
      }
    }
  }

  private void call(JsonObject step) throws Mismatch {
    Script script = scripts.get(step.get("call").getAsString());
    List<byte[]> keys = step.has("keys") ? list(step.get("keys")) : keys(script, step.get("on"));
    List<byte[]> argv = list(step.get("argv"));
    List<State> before = step.has("error") ? states(keys) : List.of();
    names.remove("now");
    long least = time();
    Object reply;
    try {
      reply = plain(scripts.run(script, keys, argv));
    } catch (JedisDataException refused) {
      reply = refused;
    }
    now = new Range(least, time());
    if (!step.has("error")) {
      expect(step, step.get("reply"), reply, 0);
      return;
    }
    String error = keys(step.get("error").getAsString());
    String said = reply instanceof JedisDataException refused ? refused.getMessage() : "";
    if (!(error.startsWith("LUAGATE") ? said.equals(error) : said.contains(error))) {
      throw new Mismatch(step, error, reply);
    }
    List<State> after = states(keys);
    for (int i = 0; i < keys.size(); i++) {
      boolean same = after.get(i).value.equals(before.get(i).value);
      if (!same || Math.abs(after.get(i).end - before.get(i).end) > 2) {
        throw new Mismatch(step, "no change of " + before.get(i), after.get(i));
      }
    }
  }

  private void command(JsonObject step) throws Mismatch {
    List<byte[]> words = list(step.get("command"));
    byte[][] arguments = words.subList(1, words.size()).toArray(byte[][]::new);
    Object reply = plain(redis.sendCommand(() -> words.get(0), arguments));
    if (step.has("reply")) {
      expect(step, step.get("reply"), reply, 0);
    }
  }

  private void full(boolean full) {
    redis.configSet("maxmemory", full ? "1" : "0");
  }

  private void subscribe(byte[] channel) {
    unread.put(text(channel), new ArrayDeque<>());
    subscriber.sendCommand(Command.SUBSCRIBE, channel);
    readUpTo("subscribe", text(channel));
  }

  private void unsubscribe(JsonObject step, byte[] channel) throws Mismatch {
    silence(step, text(channel));
    subscriber.sendCommand(Command.UNSUBSCRIBE, channel);
    readUpTo("unsubscribe", text(channel));
    unread.remove(text(channel));
  }

  private void silence(JsonObject step, String channel) throws Mismatch {
    String message = read(channel).poll();
    if (message != null) {
      throw new Mismatch(step, "no message", message);
    }
  }

  private void message(JsonObject step) throws Mismatch {
    String message = read(text(bytes(step.get("inbox")))).poll();
    if (message == null) {
      throw new Mismatch(step, "a message", "none");
    }
    if (step.has("secret")) {
      int end = message.lastIndexOf(' ');
      String signature = sha1(step.get("secret").getAsString() + message.substring(0, end));
      if (!message.substring(end + 1).equals(signature)) {
        throw new Mismatch(step, "the signature " + signature, message);
      }
      message = message.substring(0, end);
    }
    Stream<String> words = Stream.of(message.split(" ", -1));
    expect(
        step,
        step.get("message"),
        words.map(word -> word.matches("-?\\d+") ? (Object) Long.valueOf(word) : word).toList(),
        0);
  }

  /** The messages that arrived on a channel: all that came before one of our own. */
  private Queue<String> read(String channel) {
    String own = UUID.randomUUID().toString();
    redis.publish(channel.getBytes(ISO_8859_1), own.getBytes(ISO_8859_1));
    readUpTo("message", channel, own);
    return unread.get(channel);
  }

  private void readUpTo(Object... last) {
    while (true) {
      List<?> reply = (List<?>) plain(subscriber.getOne());
      if (reply.subList(0, last.length).equals(List.of(last))) {
        return;
      }
      unread.get(reply.get(1)).add((String) reply.get(2));
    }
  }

  private void expect(JsonObject step, JsonElement expected, Object got, long tolerance)
      throws Mismatch {
    bind(expected, got);
    if (!fits(expected, got, tolerance)) {
      throw new Mismatch(step, expected, got);
    }
  }

  private void bind(JsonElement expected, Object got) {
    if (expected.isJsonArray() && got instanceof List<?> list) {
      for (int i = 0; i < Math.min(expected.getAsJsonArray().size(), list.size()); i++) {
        bind(expected.getAsJsonArray().get(i), list.get(i));
      }
    } else if (isPattern(expected)) {
      for (String word : expected.getAsString().split(" ")) {
        Matcher name = NAME.matcher(word);
        boolean bare = name.matches() && !names.containsKey(name.group(1));
        if (bare && (!word.equals("$now") || fits(word, got, 0))) {
          names.put(name.group(1), got);
        }
      }
    }
  }

  private static boolean isPattern(JsonElement expected) {
    return expected.isJsonPrimitive() && PATTERN.matcher(expected.getAsString()).matches();
  }

  private boolean fits(JsonElement expected, Object got, long tolerance) {
    if (expected.isJsonArray()) {
      JsonArray array = expected.getAsJsonArray();
      return got instanceof List<?> list
          && list.size() == array.size()
          && IntStream.range(0, list.size())
              .allMatch(i -> fits(array.get(i), list.get(i), tolerance));
    }
    if (expected.isJsonObject() && expected.getAsJsonObject().has("length")) {
      int length = expected.getAsJsonObject().get("length").getAsInt();
      return got instanceof List<?> list && list.size() == length;
    }
    if (isPattern(expected)) {
      return Stream.of(expected.getAsString().split(" "))
          .allMatch(word -> fits(word, got, tolerance));
    }
    boolean number = expected.isJsonPrimitive() && expected.getAsJsonPrimitive().isNumber();
    return got.equals(number ? (Object) expected.getAsLong() : text(bytes(expected)));
  }

  private boolean fits(String word, Object got, long tolerance) {
    if (word.equals("*")) {
      return true;
    }
    if (!(got instanceof Long number)) {
      return word.startsWith("$") && got.equals(names.get(word.substring(1)));
    }
    Matcher range = RANGE.matcher(word);
    range.matches();
    Range from = sum(range.group(2));
    Range to = range.group(3) == null ? from : sum(range.group(3));
    return switch (range.group(1) == null ? "" : range.group(1)) {
      case "<" -> number < to.most + tolerance;
      case "<=" -> number <= to.most + tolerance;
      case ">" -> number > from.least - tolerance;
      case ">=" -> number >= from.least - tolerance;
      default -> number >= from.least - tolerance && number <= to.most + tolerance;
    };
  }

  private Range sum(String text) {
    Range sum = new Range(0, 0);
    for (Matcher term = TERM.matcher(text); term.find(); ) {
      Range next =
          term.group(2) == null ? exactly(Long.parseLong(term.group(3))) : range(term.group(2));
      sum =
          term.group(1).equals("-")
              ? new Range(sum.least - next.most, sum.most - next.least)
              : new Range(sum.least + next.least, sum.most + next.most);
    }
    return sum;
  }

  private Range range(String name) {
    if (name.equals("us")) {
      Range ms = range("now");
      return new Range(ms.least * 1000, ms.most * 1000);
    }
    return name.equals("now") && !names.containsKey("now") ? now : exactly((Long) names.get(name));
  }

  private static Range exactly(long number) {
    return new Range(number, number);
  }

  private long time() {
    return millis(redis.sendCommand(Command.TIME));
  }

  private static long millis(Object time) {
    var parts = (List<?>) plain(time);
    return Long.parseLong((String) parts.get(0)) * 1000
        + Long.parseLong((String) parts.get(1)) / 1000;
  }

  private List<State> states(List<byte[]> keys) {
    return keys.stream().map(this::state).toList();
  }

  private State state(byte[] key) {
    Object value =
        switch (redis.type(key)) {
          case "hash" -> redis.hgetAll(text(key));
          case "zset" -> redis.zrangeWithScores(text(key), 0, -1);
          case "list" -> redis.lrange(text(key), 0, -1);
          case "string" -> redis.get(text(key));
          default -> "nothing";
        };
    return new State(value, end(key));
  }

  /** When a key ends, by the server's clock; or what PTTL says of one that does not. */
  private long end(byte[] key) {
    try (var pipeline = redis.pipelined()) {
      var time = pipeline.sendCommand(Command.TIME, new byte[0][]);
      var left = pipeline.pttl(key);
      pipeline.sync();
      return left.get() < 0 ? left.get() : millis(time.get()) + left.get();
    }
  }

  /** The keys of a script for what it works on. */
  private List<byte[]> keys(Script script, JsonElement on) {
    var keys = new ArrayList<byte[]>();
    for (JsonElement name : values(on == null ? new JsonPrimitive("m") : on)) {
      for (String key : script.keys()) {
        if (!key.equals("...")) {
          keys.add(keys("@" + key + ":" + name.getAsString()).getBytes(UTF_8));
        }
      }
    }
    return keys;
  }

  /** A text with the keys that stand in it. */
  private String keys(String text) {
    return KEY.matcher(text)
        .replaceAll(
            key ->
                prefix
                    + ":"
                    + key.group(1)
                    + ":{x}:"
                    + (key.group(2) == null ? "m" : key.group(2)));
  }

  private List<byte[]> list(JsonElement texts) {
    return values(texts).stream().map(this::bytes).toList();
  }

  private byte[] bytes(JsonElement text) {
    if (text instanceof JsonObject object) {
      return object.has("hex")
          ? HexFormat.of().parseHex(object.get("hex").getAsString())
          : object.get("long").getAsString().repeat(object.get("times").getAsInt()).getBytes(UTF_8);
    }
    String plain = text.getAsString();
    return (plain.startsWith("$") ? "" + sum(plain).least : keys(plain)).getBytes(UTF_8);
  }

  /** The numbers from 1 to n, or the values of a list, or the one value. */
  private static List<JsonElement> values(JsonElement each) {
    if (each.isJsonArray()) {
      return each.getAsJsonArray().asList();
    }
    if (each.getAsJsonPrimitive().isString()) {
      return List.of(each);
    }
    return IntStream.rangeClosed(1, each.getAsInt())
        .mapToObj(JsonPrimitive::new)
        .map(JsonElement.class::cast)
        .toList();
  }

  /** The same with a value in place of {each}. */
  private static JsonElement fill(JsonElement in, JsonElement value) {
    if (in instanceof JsonArray array) {
      var filled = new JsonArray();
      array.forEach(element -> filled.add(fill(element, value)));
      return filled;
    }
    if (in instanceof JsonObject object) {
      var filled = new JsonObject();
      object
          .entrySet()
          .forEach(
              entry ->
                  filled.add(
                      fill(new JsonPrimitive(entry.getKey()), value).getAsString(),
                      fill(entry.getValue(), value)));
      return filled;
    }
    if (!in.getAsString().contains("{each}")) {
      return in;
    }
    return in.getAsString().equals("{each}")
        ? value
        : new JsonPrimitive(in.getAsString().replace("{each}", value.getAsString()));
  }

  private static Object plain(Object reply) {
    if (reply instanceof List<?> list) {
      return list.stream().map(Conformance::plain).toList();
    }
    return reply instanceof byte[] bytes ? text(bytes) : reply;
  }

  private static String text(byte[] bytes) {
    return new String(bytes, ISO_8859_1);
  }

  private static String sha1(String text) {
    try {
      byte[] digest = MessageDigest.getInstance("SHA-1").digest(text.getBytes(ISO_8859_1));
      return HexFormat.of().formatHex(digest);
    } catch (NoSuchAlgorithmException missing) {
      throw new IllegalStateException(missing);
    }
  }
}
