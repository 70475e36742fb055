package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.gson.Gson;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.util.SafeEncoder;

/** The scripts of the folder {@code lua/}, called as its manifest says. */
public final class Scripts {
  private record Manifest(int contract, Map<String, Script> scripts) {}

  /** What the manifest says of a script. */
  public record Script(
      List<String> parts,
      String sha1,
      List<String> keys,
      List<String> argv,
      Map<String, List<String>> replies) {}

  /**
   * A reply or a message: its word, its fields by name, and an instant that is not after its now.
   */
  record Reply(String word, Map<String, Object> fields, long instant) {
    long number(String field) {
      return (Long) fields.get(field);
    }

    /** When the lease is over for sure, on this machine's clock: 1 ms is the server's rounding. */
    long deadline() {
      return instant + MILLISECONDS.toNanos(number("expires_at") - number("now") - 1);
    }
  }

  final RedisClient redis;
  private final Map<String, Script> scripts;
  private final Map<Script, String> texts = new HashMap<>();

  /** Reads the manifest and the parts. */
  public Scripts(RedisClient redis, Path folder) throws IOException {
    String json = Files.readString(folder.resolve("manifest.json"));
    Manifest manifest = new Gson().fromJson(json, Manifest.class);
    if (manifest.contract != 1) {
      throw new IOException("manifest.json: takes contract 1, got " + manifest.contract);
    }
    this.redis = redis;
    scripts = manifest.scripts;
    for (Script script : scripts.values()) {
      String text = "";
      for (String part : script.parts) {
        text += Files.readString(folder.resolve(part));
      }
      texts.put(script, text);
    }
  }

  /** The script of this name. */
  public Script get(String name) {
    return scripts.get(name);
  }

  /** Runs a script, and loads it where the server does not know it. */
  public Object run(Script script, List<byte[]> keys, List<byte[]> argv) {
    byte[] sha1 = SafeEncoder.encode(script.sha1);
    try {
      return redis.evalsha(sha1, keys, argv);
    } catch (JedisNoScriptException unknown) {
      try (var pipeline = redis.pipelined()) {
        pipeline.sendCommand(Command.SCRIPT, "LOAD", texts.get(script));
        var reply = pipeline.evalsha(sha1, keys, argv);
        pipeline.sync();
        return reply.get();
      } catch (JedisNoScriptException flushed) {
        return redis.eval(SafeEncoder.encode(texts.get(script)), keys, argv);
      }
    }
  }

  /** Runs a script with arguments by name; again with the same ones where its reply was lost. */
  Reply call(String name, List<byte[]> keys, Map<String, ?> arguments) {
    Script script = get(name);
    var argv =
        script.argv.stream().map(arg -> SafeEncoder.encode("" + arguments.get(arg))).toList();
    return retry(
        () -> {
          long sent = System.nanoTime();
          var reply = (List<?>) SafeEncoder.encodeObject(run(script, keys, argv));
          var fields = new HashMap<String, Object>();
          for (String field : script.replies.get(reply.get(0))) {
            fields.put(field, reply.get(fields.size() + 1));
          }
          return new Reply((String) reply.get(0), fields, sent);
        });
  }

  /** Makes a call; again where its reply was lost, a few times. */
  <T> T retry(Supplier<T> call) {
    for (int tries = 1; ; tries++) {
      try {
        return call.get();
      } catch (JedisConnectionException lost) {
        if (tries == 5) {
          throw lost;
        }
        redis.getPool().clear(); // its idle connections were most likely cut as well
        LockSupport.parkNanos(MILLISECONDS.toNanos(50 * tries));
      }
    }
  }
}
