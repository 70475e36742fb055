package luagate;

import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import redis.clients.jedis.exceptions.JedisException;

/** Permits of several semaphores, in the order of the request. */
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

  /** The time until the first of the leases ends. */
  public Duration remaining() {
    return permits.stream().map(Permit::remaining).min(Comparator.naturalOrder()).orElseThrow();
  }

  /** Whether one of the leases has ended: another client may hold its permits. */
  public boolean isLost() {
    return remaining().isZero();
  }

  /** Starts all leases anew. Throws {@link Permit.LostException} if one is lost. */
  public void refresh() {
    permits.forEach(Permit::refresh);
  }

  /** Refreshes each permit at a third of its lease. Returns the ns until the next one is due. */
  long keep() {
    permits.stream().filter(permit -> permit.due() <= 0).forEach(Permit::refresh);
    return permits.stream().mapToLong(Permit::due).min().orElse(Long.MAX_VALUE);
  }

  /** Releases all. Returns whether all were still held. */
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

  /** Releases all. */
  @Override
  public void close() {
    release();
  }
}
