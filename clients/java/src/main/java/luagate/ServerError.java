package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.Gson;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.List;

/**
 * What an error of a server or a proxy means: a row of {@code lua/errors.json}. The first row that
 * fits counts; the last one fits all.
 */
record ServerError(String code, String contains, String is, String passes) {
  private record File(List<ServerError> errors) {}

  private static final List<ServerError> ROWS = read();

  private static List<ServerError> read() {
    try {
      String text = new String(Scripts.resource("errors.json"), UTF_8);
      return new Gson().fromJson(text, File.class).errors;
    } catch (IOException missing) {
      throw new UncheckedIOException(missing);
    }
  }

  static ServerError of(ErrorReply replied) {
    String text = replied.getMessage();
    return ROWS.stream().filter(row -> row.fits(text)).findFirst().orElseThrow();
  }

  private boolean fits(String text) {
    if (code == null) {
      return (contains == null || text.contains(contains)) && (is == null || text.equals(is));
    }
    String[] words = text.split(" ");
    if (!text.startsWith("ERR Error running script")) {
      return words[0].equals(code);
    }
    // Redis 6 puts other words before the error of a command in a script.
    return Arrays.stream(words).anyMatch(word -> word.equals(code) || word.equals("-" + code));
  }

  /** Whether the same call can succeed soon, and nobody has to do anything. */
  boolean isPassing() {
    return passes.equals("yes");
  }

  /** Whether the address belongs to another server by now. */
  boolean isReadOnly() {
    return "READONLY".equals(code) || "REDIRECT".equals(code);
  }
}
