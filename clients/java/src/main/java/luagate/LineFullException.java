package luagate;

/** The line has {@code maxWaiting} waiters or more. */
public final class LineFullException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** Their number. */
  private final int waiting;

  LineFullException(String key, int waiting, int maxWaiting) {
    super(
        "%s: %d callers wait in line already, and maxWaiting is %d. Try again later"
            .formatted(key, waiting, maxWaiting));
    this.waiting = waiting;
  }

  /** The number of waiters. */
  public int waiting() {
    return waiting;
  }
}
