package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import com.google.gson.Gson;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.util.SafeEncoder;

/** Runs the scripts of a folder {@code lua/}, as listed in its manifest. */
public final class Scripts {
  private static final int CONTRACT = 1; // the version of lua/README.md that this package implements

  private record Manifest(int contract, Map<String, Script> scripts) {}

  private record Script(
      String file,
      String sha1,
      List<String> keys,
      List<String> argv,
      int optional, // the number of last arguments that may be left out
      Map<String, List<String>> replies) {}

  /**
   * A reply or a message: its word, its fields by name, and the instant from which its times count.
   * For a reply, that is an instant before the call was sent; for a message, its arrival.
   */
  record Reply(String word, Map<String, Object> fields, long instant) {
    long number(String field) {
      return (Long) fields.get(field);
    }

    /** The end of the lease by this machine's clock, less 1 ms, because the server rounds. */
    long deadline() {
      return instant + MILLISECONDS.toNanos(number("expires_at") - number("now") - 1);
    }
  }

  final RedisClient redis;
  private final Map<String, Script> scripts;
  private final Map<String, String> texts = new HashMap<>();

  /** Reads the scripts of this package. */
  public Scripts(RedisClient redis) {
    this(redis, "the package", Scripts::resource);
  }

  /** Reads the scripts of a folder {@code lua/}. */
  public Scripts(RedisClient redis, Path folder) {
    this(redis, folder.toString(), file -> Files.readAllBytes(folder.resolve(file)));
  }

  private Scripts(RedisClient redis, String folder, Folder files) {
    Manifest manifest = new Gson().fromJson(files.read("manifest.json"), Manifest.class);
    if (manifest.contract != CONTRACT) {
      throw new IllegalArgumentException(
          ("%s: got contract %d. Accepted: contract %d."
                  + " Use the folder lua/ that belongs to this package")
              .formatted(folder, manifest.contract, CONTRACT));
    }
    this.redis = redis;
    scripts = manifest.scripts;
    scripts.forEach(
        (name, script) -> {
          String text = files.read(script.file);
          if (!sha1(text).equals(script.sha1)) {
            throw new IllegalArgumentException(
                ("%s: the SHA-1 of %s differs from the manifest."
                        + " Copy the folder lua/ again, byte for byte")
                    .formatted(name, script.file));
          }
          texts.put(name, text);
        });
  }

  /** Reads the files of a folder {@code lua/}. */
  private interface Folder {
    byte[] bytes(String file) throws IOException;

    default String read(String file) {
      try {
        return new String(bytes(file), UTF_8);
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
    }
  }

  private static byte[] resource(String file) throws IOException {
    try (InputStream stream = Scripts.class.getResourceAsStream("lua/" + file)) {
      if (stream == null) {
        throw new FileNotFoundException("lua/" + file + " is missing in the jar of luagate");
      }
      return stream.readAllBytes();
    }
  }

  /** The names of a script's keys. */
  public List<String> keys(String name) {
    return scripts.get(name).keys;
  }

  /** Checks the number of fields against the manifest. One field without a word is the reply. */
  public boolean isReply(String name, Object reply) {
    var replies = scripts.get(name).replies;
    if (replies.containsKey("")) {
      int count = replies.get("").size();
      return count == 1 || ((List<?>) reply).size() == count;
    }
    var values = (List<?>) reply;
    var fields = replies.get(values.get(0));
    return fields != null && values.size() == 1 + fields.size();
  }

  /** Runs a script, and loads it first if the server does not have it. */
  public Object run(String name, List<byte[]> keys, List<byte[]> argv) {
    byte[] sha1 = SafeEncoder.encode(scripts.get(name).sha1);
    try {
      return redis.evalsha(sha1, keys, argv);
    } catch (JedisNoScriptException unknown) {
      try (var pipeline = redis.pipelined()) {
        pipeline.sendCommand(Command.SCRIPT, "LOAD", texts.get(name));
        var reply = pipeline.evalsha(sha1, keys, argv);
        pipeline.sync();
        return reply.get();
      } catch (JedisNoScriptException flushed) {
        return redis.eval(SafeEncoder.encode(texts.get(name)), keys, argv);
      }
    }
  }

  /** Runs a script with arguments by name. */
  Reply call(String name, List<String> keys, Map<String, ?> arguments) {
    Script script = scripts.get(name);
    var needed = script.argv.subList(0, script.argv.size() - script.optional);
    var argv =
        script.argv.stream()
            .filter(argument -> needed.contains(argument) || arguments.containsKey(argument))
            .map(argument -> arguments.get(argument).toString())
            .toList();
    return callWith(name, keys, argv);
  }

  /** Runs a script with arguments in their order. */
  Reply callWith(String name, List<String> keys, List<String> argv) {
    Script script = scripts.get(name);
    return retry(
        () -> {
          long instant = System.nanoTime();
          var reply = (List<?>) SafeEncoder.encodeObject(run(name, bytes(keys), bytes(argv)));
          var fields = new HashMap<String, Object>();
          for (String field : script.replies.get(reply.get(0))) {
            fields.put(field, reply.get(fields.size() + 1));
          }
          return new Reply((String) reply.get(0), fields, instant);
        });
  }

  private static List<byte[]> bytes(List<String> texts) {
    return texts.stream().map(SafeEncoder::encode).toList();
  }

  /** The SHA-1 of a text, in hexadecimal digits. */
  public static String sha1(String text) {
    try {
      MessageDigest sha1 = MessageDigest.getInstance("SHA-1");
      return HexFormat.of().formatHex(sha1.digest(text.getBytes(UTF_8)));
    } catch (NoSuchAlgorithmException missing) {
      throw new IllegalStateException(missing); // every Java has it
    }
  }

  /**
   * Makes a call. If the reply is lost, retries for 3 s: the same id is never granted twice.
   */
  <T> T retry(Supplier<T> call) {
    long end = System.nanoTime() + SECONDS.toNanos(3);
    for (long pauseMs = 50; ; pauseMs *= 2) {
      try {
        return call.get();
      } catch (JedisConnectionException lost) {
        if (System.nanoTime() - end >= 0) {
          throw lost;
        }
        LockSupport.parkNanos(MILLISECONDS.toNanos(pauseMs));
      }
    }
  }
}
