package luagate;

/** The base of all exceptions of luagate. */
public abstract class LuagateException extends RuntimeException {
  private static final long serialVersionUID = 1;

  LuagateException(String message, Throwable cause) {
    super(message, cause);
  }

  /** A sentence of a server, for one that goes on. */
  static String withoutStop(String text) {
    return text.endsWith(".") ? text.substring(0, text.length() - 1) : text;
  }
}
