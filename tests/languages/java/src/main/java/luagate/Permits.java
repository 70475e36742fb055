package luagate;

import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import redis.clients.jedis.exceptions.JedisException;

/** What was granted together, in the order in which it was asked for. */
public final class Permits implements AutoCloseable {
  private final List<Permit> permits;

  Permits(List<Permit> permits) {
    this.permits = permits;
  }

  /** The permits of each semaphore. */
  public List<Permit> permits() {
    return permits;
  }

  /** The fence of each semaphore. */
  public List<Long> fences() {
    return permits.stream().map(Permit::fence).toList();
  }

  /** What is left of the lease that ends first. */
  public Duration remaining() {
    return permits.stream().map(Permit::remaining).min(Comparator.naturalOrder()).orElseThrow();
  }

  /** Whether one of the leases is over: others may hold what it held. */
  public boolean isLost() {
    return remaining().isZero();
  }

  /** Begins all leases anew; throws {@link Permit.LostException} where one was lost. */
  public void refresh() {
    permits.forEach(Permit::refresh);
  }

  /** Refreshes those of which a third of the lease is over; nanoseconds until the next one is. */
  long keep() {
    permits.stream().filter(permit -> permit.due() <= 0).forEach(Permit::refresh);
    return permits.stream().mapToLong(Permit::due).min().orElse(Long.MAX_VALUE);
  }

  /** Gives all back, and says whether all were still held. */
  public boolean release() {
    boolean wereHeld = true;
    JedisException failed = null;
    for (Permit permit : permits) {
      try {
        wereHeld &= permit.release();
      } catch (JedisException unreachable) {
        failed = unreachable;
      }
    }
    if (failed != null) {
      throw failed;
    }
    return wereHeld;
  }

  /** Gives all back. */
  @Override
  public void close() {
    release();
  }
}
