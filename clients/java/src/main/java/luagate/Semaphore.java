package luagate;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * Grants permits, of which at most {@code limit} are held at a time. Threads may share it. Nothing
 * is re-entrant. A permit has a lease of 30 s, which is renewed in the background until the permit
 * is released; {@link #lease} changes this.
 */
public final class Semaphore {
  final Settings settings;

  Semaphore(Settings settings) {
    this.settings = settings;
  }

  /**
   * The same semaphore with another lease, 1 ms or more. A permit ends after this time, unless
   * {@link #autoRenew} is set or {@link Permit#refresh} is called.
   */
  public Semaphore lease(Duration lease) {
    return new Semaphore(settings.withLease(Objects.requireNonNull(lease)));
  }

  /** The same semaphore, which renews leases in the background until the permit is released. */
  public Semaphore autoRenew() {
    return new Semaphore(settings.withAutoRenew());
  }

  /**
   * The same semaphore with a bounded line: if this number of callers or more wait, {@code acquire}
   * throws {@link LineFullException}. 0: no bound.
   */
  public Semaphore maxWaiting(int waiters) {
    return new Semaphore(settings.withMaxWaiting(waiters));
  }

  /**
   * The same semaphore with a minimum hold: a permit that is released earlier than this after its
   * grant stays in use until then. The lease is not shorter. Zero: no minimum.
   */
  public Semaphore atLeast(Duration hold) {
    return new Semaphore(settings.withAtLeast(hold));
  }

  /**
   * The same semaphore with a head start, zero to one day: a call joins the line as if it had come
   * that much earlier. Only calls that come within the head start after a waiter can overtake it.
   */
  public Semaphore headStart(Duration by) {
    return new Semaphore(settings.withHeadStart(by));
  }

  /**
   * The same semaphore with a notice: this is called once, on a background thread, if a permit is
   * lost, and not if it is released.
   */
  public Semaphore onLost(Consumer<Permit> notify) {
    return new Semaphore(settings.withOnLost(notify));
  }

  /** Returns a permit at once, if one is free and no caller waits. */
  public Optional<Permit> tryAcquire() {
    return tryAcquire(1);
  }

  /** Returns this number of permits at once, if they are free and no caller waits. */
  public Optional<Permit> tryAcquire(int permits) {
    return new Request(settings, permits).tryAcquire();
  }

  /** Waits in line for a permit. See {@link #acquire(int, Duration)}. */
  public Permit acquire(Duration timeout) throws InterruptedException, TimeoutException {
    return acquire(1, timeout);
  }

  /**
   * Waits in line for this number of permits: first come, first served. Throws {@link
   * LineFullException} or {@link RevokedException}. After an exception nothing stays held, also
   * after an interrupt.
   */
  public Permit acquire(int permits, Duration timeout)
      throws InterruptedException, TimeoutException {
    long end = System.nanoTime() + timeout.toNanos();
    return new Request(settings, permits).acquire(timeout, end);
  }
}
