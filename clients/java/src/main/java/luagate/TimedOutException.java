package luagate;

/**
 * The timeout of {@code acquire} ended. The caller holds nothing. The cause is the last error of
 * Jedis, if the server did not answer. The numbers are those of the last reply. The next expiry can
 * also be empty because that reply did not contain it. Without any reply, the limit is 0, and
 * nothing is known.
 */
public final class TimedOutException extends RefusedException {
  private static final long serialVersionUID = 1;

  TimedOutException(
      String message, Throwable cause, int inUse, int limit, int waiting, long nextExpiryMs) {
    super(message, cause, inUse, limit, waiting, nextExpiryMs);
  }
}
