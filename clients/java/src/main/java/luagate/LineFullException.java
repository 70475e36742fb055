package luagate;

/** The line has {@code maxWaiting} waiters or more. */
public final class LineFullException extends RefusedException {
  private static final long serialVersionUID = 1;

  LineFullException(
      String key, int maxWaiting, int inUse, int limit, int waiting, long nextExpiryMs) {
    super(
        "%s: %d callers wait in line already, and maxWaiting is %d. Try again later"
            .formatted(key, waiting, maxWaiting),
        null,
        inUse,
        limit,
        waiting,
        nextExpiryMs);
  }
}
