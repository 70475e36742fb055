package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.Map;

/**
 * A reply or a message: its word, its fields by name, and the instant from which its times count.
 * For a reply, that is an instant before the call was sent; for a message, its arrival.
 */
record Reply(String word, Map<String, Object> fields, long instant) {
  /** Throws an UnexpectedReplyException if the reply has no such number. */
  long number(String field) {
    if (fields.get(field) instanceof Long number) {
      return number;
    }
    throw new UnexpectedReplyException(field, this);
  }

  int integer(String field) {
    return (int) Math.min(number(field), Integer.MAX_VALUE);
  }

  /** Nanoseconds until the end of the lease by this machine's clock, 0 or more. */
  long remaining() {
    if (number("expires_at") < 0) {
      return Long.MAX_VALUE; // permanent
    }
    long remaining = remainingAwake(); // reads the clock
    return Math.max(0, remaining - Clock.suspendedSince(instant));
  }

  /** The same, as if the machine had not been suspended. */
  long remainingAwake() {
    if (number("expires_at") < 0) {
      return Long.MAX_VALUE;
    }
    long lasts = number("expires_at") - number("now") - 1; // the server rounds
    return Math.max(0, instant + MILLISECONDS.toNanos(lasts) - Clock.nanoTime());
  }

  /** Whether the reply grants the permits, and the lease has not ended yet. */
  boolean isGranted() {
    return (word.equals("granted") || word.equals("held")) && remaining() > 0;
  }
}
