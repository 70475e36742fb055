package luagate;

/**
 * The timeout of {@code acquire} ended. The caller holds nothing. The cause is the last error of
 * Jedis, if the server did not answer.
 */
public final class TimedOutException extends LuagateException {
  private static final long serialVersionUID = 1;

  TimedOutException(String message, Throwable cause) {
    super(message, cause);
  }
}
