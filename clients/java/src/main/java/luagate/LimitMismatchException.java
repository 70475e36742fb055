package luagate;

/** The semaphore is strict, and another limit is in force. The caller holds nothing. */
public final class LimitMismatchException extends LuagateException {
  private static final long serialVersionUID = 1;

  /** The limit in force. */
  private final int limit;

  LimitMismatchException(String key, int declared, int limit) {
    super(
        ("%s: the limit in force is %d, this caller declares %d."
                + " Declare %d, or change the limit with resize")
            .formatted(key, limit, declared, limit),
        null);
    this.limit = limit;
  }

  /** The limit in force. */
  public int limit() {
    return limit;
  }
}
