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

  /** Whether another client may hold one of them by now. Sends no call. */
  public boolean isLost() {
    return remaining().isZero();
  }

  /** Starts all leases anew. Throws {@link LostException} if one of the permits is lost. */
  public void refresh() {
    permits.forEach(Permit::refresh);
  }

  /** Releases all. Returns whether all were still held. A second call does no harm. */
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
