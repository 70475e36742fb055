package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.TreeMap;

/**
 * The time for which this machine was suspended. {@link System#nanoTime} stops meanwhile, and Java
 * has no clock that counts it. So it is compared with the wall clock: a step of that clock forward
 * looks the same.
 */
final class Clock {
  /** The wall clock is also adjusted slowly, and has only milliseconds. */
  private static final long SHORTEST_NS = MILLISECONDS.toNanos(100);

  /** Two clocks cannot be read at once. A reading that took longer does not count. */
  private static final long LONGEST_READING_NS = MILLISECONDS.toNanos(1);

  private static final long ORIGIN = System.nanoTime();

  /** The total until then, in ns, by the time since the origin at which it was noticed. */
  private static final TreeMap<Long, Long> TOTALS = new TreeMap<>();

  private static long difference; // of the wall clock and the other one, at the last reading

  static {
    TOTALS.put(Long.MIN_VALUE, 0L);
    difference = MILLISECONDS.toNanos(System.currentTimeMillis()) - System.nanoTime();
  }

  private Clock() {}

  /** {@link System#nanoTime}. What was suspended before is known from now on. */
  static synchronized long nanoTime() {
    long began = System.nanoTime();
    long wall = MILLISECONDS.toNanos(System.currentTimeMillis());
    long now = System.nanoTime();
    if (now - began <= LONGEST_READING_NS) {
      long suspended = wall - now - difference;
      difference = wall - now;
      if (suspended >= SHORTEST_NS) {
        TOTALS.put(now - ORIGIN, suspended() + suspended);
      }
    }
    return now;
  }

  /** The total that is known. */
  static synchronized long suspended() {
    return TOTALS.lastEntry().getValue();
  }

  /** The part since an instant of {@link #nanoTime}. */
  static synchronized long suspendedSince(long instant) {
    return suspended() - TOTALS.floorEntry(instant - ORIGIN).getValue();
  }
}
