package luagate;

/** An error that a server replied. Its cause is the exception of the library for the program. */
final class ErrorReply extends RuntimeException {
  private static final long serialVersionUID = 1;

  ErrorReply(RuntimeException ofLibrary) {
    super(String.valueOf(ofLibrary.getMessage()), ofLibrary, false, false);
  }

  RuntimeException ofLibrary() {
    return (RuntimeException) getCause();
  }

  /** Whether it begins with this code. */
  boolean is(String code) {
    return getMessage().startsWith(code + " ");
  }
}
