package luagate;

import java.time.Duration;
import java.util.Comparator;
import java.util.List;

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

  /** Whether another client may hold one of them by now. Sends nothing. */
  public boolean isLost() {
    return remaining().isZero();
  }

  /** Throws {@link LostException} if one of them is lost. See {@link Permit#check}. */
  public void check() {
    permits.forEach(Permit::check);
  }

  /** Starts all leases anew. See {@link Permit#refresh}. */
  public void refresh() {
    permits.forEach(Permit::refresh);
  }

  /**
   * Releases all. Returns whether all were still held. See {@link Permit#release}; if a release
   * fails, the others continue in the background without waiting.
   */
  public boolean release() {
    boolean wereHeld = true;
    RuntimeException failure = null;
    for (Permit permit : permits) {
      if (failure != null) {
        permit.abandon();
        continue;
      }
      try {
        wereHeld &= permit.release();
      } catch (RuntimeException failed) {
        failure = failed;
      }
    }
    if (failure != null) {
      throw failure;
    }
    return wereHeld;
  }

  /** Releases all, and does not wait for the replies. See {@link Permit#close}. */
  @Override
  public void close() {
    permits.forEach(Permit::close);
  }
}
