package luagate;

import java.time.Duration;

/**
 * The timeout of {@code acquire} ended. The caller holds nothing. The cause is the last error of
 * Jedis or Lettuce, if the server did not answer. The numbers are those of the last reply. The next
 * expiry can also be empty because that reply did not contain it. Without any reply, the limit is
 * 0, and nothing is known.
 */
public final class TimedOutException extends RefusedException {
  private static final long serialVersionUID = 1;

  TimedOutException(
      String key,
      Duration timeout,
      Throwable cause,
      int inUse,
      int limit,
      int waiting,
      long nextExpiryMs) {
    super(
        "%s: not granted within %d ms: %s"
            .formatted(key, timeout.toMillis(), why(inUse, limit, waiting)),
        cause,
        inUse,
        limit,
        waiting,
        nextExpiryMs);
  }

  private static String why(int inUse, int limit, int waiting) {
    return limit == 0
        ? "the server did not answer. Check its address, TLS and load"
        : "%d of %d permits are in use, and %d callers wait in line. Try again later"
            .formatted(inUse, limit, waiting);
  }
}
