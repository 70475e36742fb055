package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

/** Decides for how long a call is repeated that the server does not answer. */
final class Retry {
  /** If no attempt of a new id had a connection, for example if no server listens. */
  private static final long UNCONNECTED_NS = MILLISECONDS.toNanos(500);

  /** What is wrong if each reply came after the end of its lease. */
  static final String TOO_LATE =
      ": each reply came after the end of the lease. Ask for a longer lease, or check the load";

  private static final long FIRST_PAUSE_NS = MILLISECONDS.toNanos(20);
  private static final long LONGEST_PAUSE_NS = MILLISECONDS.toNanos(500);
  private static final long FIRST_ATTEMPT_NS = SECONDS.toNanos(1);

  private final String key;
  private final long outageNs;
  private boolean isKnown; // the server may know the id
  private boolean isUnsure;
  private long began;
  private int attempts; // without an answer, since `began`
  private Unanswered last;

  /**
   * Repeats a call while an outage lasts this long.
   *
   * @param isKnown whether the id was used in an earlier call
   */
  Retry(String key, long outageNs, boolean isKnown) {
    this.key = key;
    this.outageNs = outageNs;
    this.isKnown = isKnown;
  }

  /** Begins an attempt: after an answer, a new outage counts from now on. */
  void begin() {
    if (attempts == 0) {
      began = System.nanoTime();
    }
  }

  /** Begins an attempt. Returns when it must end: later after each attempt without an answer. */
  long attemptEnd() {
    begin();
    long now = System.nanoTime();
    long left = outageNs - (now - began);
    return now + Math.min(FIRST_ATTEMPT_NS << Math.min(attempts, 3), left);
  }

  void answered() {
    attempts = 0;
    isKnown = true;
    last = null;
  }

  /** The pause before the next attempt, in ns. Throws if there must be none. */
  long pause(Unanswered failed) {
    last = failed;
    isKnown |= !failed.isUnsent;
    isUnsure |= !failed.isUnsent;
    long lasts = System.nanoTime() - began;
    long longest = isKnown ? outageNs : Math.min(UNCONNECTED_NS, outageNs);
    if (lasts >= longest) {
      throw new UnreachableException(
          ("%s: the server did not answer for %d ms: %s."
                  + " Check that it runs, its address and its load")
              .formatted(
                  key,
                  NANOSECONDS.toMillis(lasts),
                  LuagateException.withoutStop(failed.getMessage())),
          failed.getCause());
    }
    long pause = Math.min(FIRST_PAUSE_NS << Math.min(attempts++, 10), LONGEST_PAUSE_NS);
    return Math.min(pause, longest - lasts);
  }

  /** An attempt was not answered, which {@link #pause} does not know. */
  void unanswered() {
    isUnsure = true;
  }

  /** Whether any attempt was not answered: it may reach the server late. */
  boolean isUnsure() {
    return isUnsure;
  }

  /** Whether the last attempt was not answered. */
  boolean isUnanswered() {
    return last != null;
  }

  /** The last error of the library if the last attempt was not answered, otherwise null. */
  Throwable cause() {
    return last == null ? null : last.getCause();
  }
}
