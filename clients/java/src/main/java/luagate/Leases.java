package luagate;

import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The leases that a gate renews, or whose end it reports. Timers stop while the machine is
 * suspended. So after that all leases are looked at.
 */
final class Leases {
  private static final long PERIOD_NS = SECONDS.toNanos(1);

  private final Background background;
  private final Set<Lease> kept = ConcurrentHashMap.newKeySet();
  private final AtomicBoolean isLooking = new AtomicBoolean();
  private volatile long suspended; // what was known at the last look

  Leases(Background background) {
    this.background = background;
  }

  void add(Lease lease) {
    kept.add(lease);
    lookLater();
  }

  void remove(Lease lease) {
    kept.remove(lease);
  }

  private void lookLater() {
    if (!kept.isEmpty() && isLooking.compareAndSet(false, true)) {
      suspended = Clock.suspended();
      background.after(PERIOD_NS, this::look);
    }
  }

  private void look() {
    Clock.nanoTime();
    if (Clock.suspended() != suspended) {
      kept.forEach(Lease::wake);
    }
    isLooking.set(false);
    lookLater();
  }
}
