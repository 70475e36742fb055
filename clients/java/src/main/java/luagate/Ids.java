package luagate;

import java.security.SecureRandom;
import java.util.UUID;

/** Names that no other client uses. */
final class Ids {
  private static final String CHARACTERS =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  private static final SecureRandom RANDOM = new SecureRandom();

  private Ids() {}

  /** The id of one request: {@code <uuid>} or {@code <label>/<uuid>}. */
  static String id(String label) {
    return label == null ? UUID.randomUUID().toString() : label + "/" + UUID.randomUUID();
  }

  /** The label of an id, or an empty text. */
  static String label(String id) {
    boolean isOurs = id.matches("(?s).*/[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");
    return isOurs ? id.substring(0, id.lastIndexOf('/')) : "";
  }

  /** A random word. Each character has 6 bits. */
  static String word(int length) {
    StringBuilder word = new StringBuilder(length);
    RANDOM.ints(length, 0, CHARACTERS.length()).forEach(i -> word.append(CHARACTERS.charAt(i)));
    return word.toString();
  }
}
