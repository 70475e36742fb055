package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.Gson;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/** The scripts of a folder {@code lua/}, as listed in its manifest. For tests and tools. */
public final class Scripts {
  private static final int CONTRACT = 1; // the version of lua/README.md in this package

  private static final long HIGHEST = 1L << 53; // of the numbers of Lua: times, tickets and fences
  private static final String INSPECT = "dist/semaphore/inspect.lua";
  private static final String SEVERAL = "dist/semaphore/try_acquire_several.lua";

  /** The fields that are lists, and the length of each row. All other fields are numbers. */
  private static final Map<String, Integer> ROWS =
      Map.of(
          INSPECT + " holders", 5,
          INSPECT + " waiters", 4,
          SEVERAL + " permits", 5,
          SEVERAL + " usages", 3);

  private record Manifest(int contract, Map<String, Script> scripts) {}

  /** A script of the manifest. */
  record Script(
      String file,
      String sha1,
      List<String> keys,
      List<String> argv,
      int optional, // the number of last arguments that may be left out
      Map<String, List<String>> replies) {

    /** The arguments in their order. */
    List<Object> inOrder(Map<String, ?> arguments) {
      int needed = argv.size() - optional;
      var ordered = new ArrayList<Object>();
      for (String argument : argv) {
        if (ordered.size() < needed || arguments.containsKey(argument)) {
          ordered.add(arguments.get(argument));
        }
      }
      return ordered;
    }

    /**
     * The reply with its fields by name: numbers, and lists of rows. Its times count from this
     * instant. Throws an UnexpectedReplyException.
     */
    Reply reply(Object reply, long instant) {
      List<?> values = reply instanceof List<?> list ? list : List.of();
      boolean hasWord = !replies.containsKey("");
      Object word = !hasWord ? "" : values.isEmpty() ? null : values.get(0);
      List<String> names = word instanceof String ? replies.get(word) : null;
      int first = hasWord ? 1 : 0;
      if (names == null || values.size() < first + names.size()) {
        throw new UnexpectedReplyException(file, reply);
      }
      var fields = new HashMap<String, Object>();
      for (String name : names) {
        Object field = values.get(first + fields.size());
        Integer length = ROWS.get(file + " " + name);
        if (!(length == null ? isNumber(field) : areRows(field, length, file.equals(INSPECT)))) {
          throw new UnexpectedReplyException(file, reply);
        }
        fields.put(name, field);
      }
      return new Reply((String) word, fields, instant);
    }

    private static boolean isNumber(Object value) {
      return value instanceof Long number && number >= -1 && number <= HIGHEST;
    }

    /** Whether it is a list of rows of numbers. With ids, each row begins with one. */
    private static boolean areRows(Object value, int length, boolean haveIds) {
      return value instanceof List<?> rows
          && rows.stream().allMatch(row -> row instanceof List<?> cells
              && cells.size() >= length
              && (!haveIds || cells.get(0) instanceof String)
              && cells.subList(haveIds ? 1 : 0, length).stream().allMatch(Script::isNumber));
    }
  }

  private final Map<String, Script> scripts;
  private final Map<String, String> texts = new HashMap<>(); // by name

  /** Reads the scripts of this package. */
  Scripts() {
    this("the package", Scripts::resource);
  }

  /** Reads the scripts of a folder {@code lua/}. */
  Scripts(Path folder) {
    this(folder.toString(), file -> Files.readAllBytes(folder.resolve(file)));
  }

  private Scripts(String folder, Folder files) {
    Manifest manifest = new Gson().fromJson(files.read("manifest.json"), Manifest.class);
    Settings.check(
        manifest.contract == CONTRACT,
        folder,
        "contract " + manifest.contract,
        "contract " + CONTRACT + ". Use the folder lua/ that belongs to this package");
    scripts = manifest.scripts;
    scripts.forEach(
        (name, script) -> {
          String text = files.read(script.file);
          if (!sha1(text).equals(script.sha1)) {
            throw new InvalidException(
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

  /** A file of the folder {@code lua/} of this package. */
  static byte[] resource(String file) throws IOException {
    try (InputStream stream = Scripts.class.getResourceAsStream("lua/" + file)) {
      if (stream == null) {
        throw new FileNotFoundException("lua/" + file + " is missing in the jar of luagate");
      }
      return stream.readAllBytes();
    }
  }

  Script script(String name) {
    return scripts.get(name);
  }

  /** The text of a script, as the server receives it. */
  String text(String name) {
    return texts.get(name);
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

  /** The SHA-1 of a text, in hexadecimal digits. */
  public static String sha1(String text) {
    try {
      MessageDigest sha1 = MessageDigest.getInstance("SHA-1");
      return HexFormat.of().formatHex(sha1.digest(text.getBytes(UTF_8)));
    } catch (NoSuchAlgorithmException missing) {
      throw new IllegalStateException(missing); // every Java has it
    }
  }
}
