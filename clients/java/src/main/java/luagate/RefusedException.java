package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import java.util.Optional;

/** Not granted, with the usage of the semaphore at that time. The caller holds nothing. */
public abstract class RefusedException extends LuagateException {
  private static final long serialVersionUID = 1;

  /** Its counts. */
  private final int inUse;

  private final int limit;
  private final int waiting;
  private final long nextExpiryMs; // -1: never

  RefusedException(
      String message, Throwable cause, int inUse, int limit, int waiting, long nextExpiryMs) {
    super(message, cause);
    this.inUse = inUse;
    this.limit = limit;
    this.waiting = waiting;
    this.nextExpiryMs = nextExpiryMs;
  }

  /** How many permits are in use. */
  public int inUse() {
    return inUse;
  }

  /** The limit in force. */
  public int limit() {
    return limit;
  }

  /** How many callers wait in line. */
  public int waiting() {
    return waiting;
  }

  /** The time until the next lease ends, unless its holder renews it. Empty: no lease ends. */
  public Optional<Duration> nextExpiry() {
    return nextExpiryMs < 0 ? Optional.empty() : Optional.of(Duration.ofMillis(nextExpiryMs));
  }

  /**
   * Estimates the time until a permit is free for the caller: hold × (waiting + 1) / limit, at
   * least 1 ms. Sends nothing.
   *
   * @param hold the typical time for which a permit is held, up to a hundred years
   */
  public Duration retryAfter(Duration hold) {
    long holdMs = Settings.millis("hold", hold, 0, Settings.LONGEST_MS);
    double estimateMs = (double) holdMs * (waiting + 1L) / Math.max(1, limit);
    return Duration.ofNanos(Math.max(MILLISECONDS.toNanos(1), (long) (estimateMs * 1e6)));
  }
}
