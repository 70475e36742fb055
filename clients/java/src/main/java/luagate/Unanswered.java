package luagate;

/** An attempt of a call without a reply that counts. The call can be repeated with the same id. */
final class Unanswered extends Exception {
  private static final long serialVersionUID = 1;

  /** Whether the server cannot have run the call, because there was no connection to it. */
  final boolean isUnsent;

  Unanswered(String message, Throwable cause, boolean isUnsent) {
    super(message, cause);
    this.isUnsent = isUnsent;
  }
}
