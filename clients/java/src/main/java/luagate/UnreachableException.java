package luagate;

/** The server cannot be reached, or did not answer in time. */
public final class UnreachableException extends LuagateException {
  private static final long serialVersionUID = 1;

  UnreachableException(String message, Throwable cause) {
    super(message, cause);
  }
}
