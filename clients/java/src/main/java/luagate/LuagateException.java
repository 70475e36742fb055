package luagate;

/** The base of all exceptions of luagate. */
public abstract class LuagateException extends RuntimeException {
  private static final long serialVersionUID = 1;

  LuagateException(String message, Throwable cause) {
    super(message, cause);
  }
}
