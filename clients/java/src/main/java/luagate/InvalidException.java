package luagate;

/** An argument is not valid. Nothing was sent. */
public final class InvalidException extends LuagateException {
  private static final long serialVersionUID = 1;

  InvalidException(String message) {
    super(message, null);
  }
}
