import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.UUID;
import java.util.stream.Stream;
import luagate.Luagate;
import luagate.Scripts;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.JedisURIHelper;

/** One run of one case. The server's bytes are stored as text, one character per byte. */
public final class Conformance implements AutoCloseable {
  /** The value of a key, and its end. */
  private record State(Object value, long end) {}

  /** The result of a step differs from the expected one. */
  private static final class Mismatch extends Exception {
    Mismatch(Object step, Object expected, Object got) {
      super(step + ": expected " + expected + ", got " + got);
    }
  }

  private final RedisClient redis;
  private final Luagate gate;
  private final Connection subscriber;
  private final Texts texts = new Texts();
  private final Map<String, Queue<String>> unread = new HashMap<>();
  private long pausedMs;

  /** {@code URL CASES LUA}: runs the cases of a folder. No other client may use the server. */
  public static void main(String[] args) throws Exception {
    int passed = 0;
    int failed = 0;
    try (var redis = RedisClient.create(args[0]);
        var gate = Luagate.builder(redis).scripts(Path.of(args[2])).build();
        var files = Files.newDirectoryStream(Path.of(args[1]), "*.json")) {
      for (Path file : files) {
        for (JsonElement test : JsonParser.parseString(Files.readString(file)).getAsJsonArray()) {
          try {
            run(redis, URI.create(args[0]), gate, test.getAsJsonObject());
            passed++;
          } catch (Mismatch mismatch) {
            failed++;
            String name = test.getAsJsonObject().get("name").getAsString();
            System.out.println(file.getFileName() + ": " + name + ": " + mismatch.getMessage());
          }
        }
      }
    }
    System.out.println(passed + " passed, " + failed + " failed");
    System.exit(failed == 0 && passed > 0 ? 0 : 1);
  }

  /** Runs a case, again if it failed but took too long: such a result is meaningless. */
  private static void run(RedisClient redis, URI url, Luagate gate, JsonObject test)
      throws Exception {
    long slackMs = test.has("slack_ms") ? test.get("slack_ms").getAsLong() : 20;
    for (int runs = 1; ; runs++) {
      long began = System.nanoTime();
      try (var run = new Conformance(redis, url, gate)) {
        try {
          run.steps(test.get("steps"));
          for (String channel : run.unread.keySet()) {
            run.silence(test, channel);
          }
          return;
        } catch (Mismatch mismatch) {
          long tookMs = (System.nanoTime() - began) / 1_000_000 - run.pausedMs;
          if (tookMs <= slackMs || runs == 100) {
            throw mismatch;
          }
        }
      }
    }
  }

  private Conformance(RedisClient redis, URI url, Luagate gate) {
    this.redis = redis;
    this.gate = gate;
    var resp2 = DefaultJedisClientConfig.builder().resp2().build();
    subscriber = new Connection(JedisURIHelper.getHostAndPort(url), resp2);
  }

  @Override
  public void close() {
    subscriber.close();
    full(false);
    redis.keys(texts.prefix + ":*").forEach(redis::del);
  }

  private void steps(JsonElement steps) throws Exception {
    for (JsonElement element : steps.getAsJsonArray()) {
      JsonObject step = element.getAsJsonObject();
      if (step.has("call")) {
        call(step);
      } else if (step.has("subscribe")) {
        subscribe(texts.bytes(step.get("subscribe")));
      } else if (step.has("unsubscribe")) {
        unsubscribe(step, texts.bytes(step.get("unsubscribe")));
      } else if (step.has("message")) {
        message(step);
      } else if (step.has("silence")) {
        silence(step, Texts.text(texts.bytes(step.get("silence"))));
      } else if (step.has("pause_ms")) {
        Thread.sleep(step.get("pause_ms").getAsLong());
        pausedMs += step.get("pause_ms").getAsLong();
      } else if (step.has("ends")) {
        for (var end : step.getAsJsonObject("ends").entrySet()) {
          expect(step, end.getValue(), end(texts.keys(end.getKey())), 2);
        }
      } else if (step.has("command")) {
        command(step);
      } else if (step.has("full")) {
        full(step.get("full").getAsBoolean());
      } else {
        String inner = step.get("steps").toString();
        for (JsonElement value : Texts.values(step.get("each"))) {
          String filled = inner.replace("\"{each}\"", value.toString());
          if (filled.contains("{each}")) { // within a text
            filled = filled.replace("{each}", value.getAsString());
          }
          steps(JsonParser.parseString(filled));
        }
      }
    }
  }

  private void call(JsonObject step) throws Mismatch {
    String script = step.get("call").getAsString();
    List<byte[]> keys =
        step.has("keys") ? texts.list(step.get("keys")) : keys(script, step.get("on"));
    var before = step.has("error") ? keys.stream().map(this::state).toList() : null;
    texts.forgetNow();
    long least = time();
    Object reply;
    try {
      reply = plain(gate.run(script, keys, texts.list(step.get("argv"))));
    } catch (JedisDataException refused) {
      reply = refused.getMessage();
      if (!step.has("error")) {
        throw new Mismatch(step, step.get("reply"), reply);
      }
    }
    texts.setNow(least, time());
    if (!step.has("error")) {
      expect(step, step.get("reply"), reply, 0);
      if (!gate.scripts().isReply(script, reply)) {
        throw new Mismatch(step, "the number of fields in the manifest", reply);
      }
      return;
    }
    String error = texts.keys(step.get("error").getAsString());
    if (!(error.startsWith("LUAGATE") ? reply.equals(error) : reply.toString().contains(error))) {
      throw new Mismatch(step, error, reply);
    }
    var after = keys.stream().map(this::state).toList();
    for (int i = 0; i < keys.size(); i++) {
      long moved = Math.abs(after.get(i).end - before.get(i).end);
      if (!after.get(i).value.equals(before.get(i).value) || moved > 2) {
        throw new Mismatch(step, before.get(i), after.get(i));
      }
    }
  }

  private void command(JsonObject step) throws Mismatch {
    List<byte[]> words = texts.list(step.get("command"));
    var arguments = new CommandArguments(() -> words.get(0));
    words.subList(1, words.size()).forEach(arguments::add);
    Object reply = plain(redis.executeCommand(arguments));
    if (step.has("reply")) {
      expect(step, step.get("reply"), reply, 0);
    }
  }

  private void full(boolean full) {
    redis.configSet("maxmemory", full ? "1" : "0");
  }

  private void subscribe(byte[] channel) {
    unread.put(Texts.text(channel), new ArrayDeque<>());
    subscriber.sendCommand(Command.SUBSCRIBE, channel);
    readUpTo("subscribe", Texts.text(channel));
  }

  private void unsubscribe(JsonObject step, byte[] channel) throws Mismatch {
    silence(step, Texts.text(channel));
    subscriber.sendCommand(Command.UNSUBSCRIBE, channel);
    readUpTo("unsubscribe", Texts.text(channel));
    unread.remove(Texts.text(channel));
  }

  private void silence(JsonObject step, String channel) throws Mismatch {
    String message = next(channel);
    if (message != null) {
      throw new Mismatch(step, "no message", message);
    }
  }

  private void message(JsonObject step) throws Mismatch {
    String message = next(Texts.text(texts.bytes(step.get("inbox"))));
    if (message == null) {
      throw new Mismatch(step, "a message", "no message");
    }
    if (step.has("secret")) {
      int end = Math.max(0, message.lastIndexOf(' '));
      String signed = step.get("secret").getAsString() + message.substring(0, end);
      if (!message.endsWith(" " + Scripts.sha1(signed))) {
        throw new Mismatch(step, "a valid signature", message);
      }
      message = message.substring(0, end);
    }
    var words = Stream.of(message.split(" ", -1)).map(Conformance::number).toList();
    expect(step, step.get("message"), words, 0);
  }

  /** The next unread message of a channel, or null. A marker message ends the reading. */
  private String next(String channel) {
    String own = UUID.randomUUID().toString();
    redis.publish(channel.getBytes(ISO_8859_1), own.getBytes(ISO_8859_1));
    readUpTo("message", channel, own);
    return unread.get(channel).poll();
  }

  private void readUpTo(Object... last) {
    while (true) {
      var reply = (List<?>) plain(subscriber.getOne());
      if (reply.subList(0, last.length).equals(List.of(last))) {
        return;
      }
      unread.get(reply.get(1)).add((String) reply.get(2));
    }
  }

  private void expect(JsonObject step, JsonElement expected, Object got, long tolerance)
      throws Mismatch {
    texts.bind(expected, got);
    if (!texts.fits(expected, got, tolerance)) {
      throw new Mismatch(step, expected, got);
    }
  }

  private State state(byte[] bytes) {
    String key = Texts.text(bytes);
    Object value =
        switch (redis.type(key)) {
          case "hash" -> redis.hgetAll(key);
          case "zset" -> redis.zrangeWithScores(key, 0, -1);
          case "list" -> redis.lrange(key, 0, -1);
          case "string" -> redis.get(key);
          default -> "nothing";
        };
    return new State(value, end(key));
  }

  /** The end of a key, by the server's clock. A negative value is the reply of PTTL. */
  private long end(String key) {
    try (var pipeline = redis.pipelined()) {
      var time = pipeline.sendCommand(new CommandArguments(Command.TIME));
      var left = pipeline.pttl(key);
      pipeline.sync();
      return left.get() < 0 ? left.get() : millis(time.get()) + left.get();
    }
  }

  private long time() {
    return millis(redis.executeCommand(new CommandArguments(Command.TIME)));
  }

  private static long millis(Object time) {
    var parts = ((List<?>) time).stream().map(part -> Texts.text((byte[]) part)).toList();
    return Long.parseLong(parts.get(0)) * 1000 + Long.parseLong(parts.get(1)) / 1000;
  }

  /** The keys of a script for each name. */
  private List<byte[]> keys(String script, JsonElement on) {
    var keys = new ArrayList<byte[]>();
    for (JsonElement name : Texts.values(on == null ? new JsonPrimitive("m") : on)) {
      for (String key : gate.scripts().keys(script)) {
        if (!key.equals("...")) {
          keys.add(texts.keys("@" + key + ":" + name.getAsString()).getBytes(UTF_8));
        }
      }
    }
    return keys;
  }

  private static Object plain(Object reply) {
    if (reply instanceof List<?> list) {
      return list.stream().map(Conformance::plain).toList();
    }
    return reply instanceof byte[] bytes ? Texts.text(bytes) : reply;
  }

  private static Object number(String word) {
    return word.matches("-?\\d{1,18}") ? (Object) Long.valueOf(word) : word;
  }
}
