package luagate;

/** More permits than the limit in force, so waiting cannot help. The caller holds nothing. */
public final class AboveLimitException extends LuagateException {
  private static final long serialVersionUID = 1;

  /** The limit in force. */
  private final int limit;

  AboveLimitException(String key, int permits, int limit) {
    super(
        ("%s: %d permits are more than the limit in force. Accepted: 1 to %d."
                + " Ask for fewer, or raise the limit with resize")
            .formatted(key, permits, limit),
        null);
    this.limit = limit;
  }

  /** The limit in force. */
  public int limit() {
    return limit;
  }
}
