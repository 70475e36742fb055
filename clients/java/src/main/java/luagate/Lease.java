package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.lang.ref.WeakReference;
import java.util.List;
import java.util.concurrent.Future;

/**
 * The lease of a permit: its end by this machine's clock, and its renewal in the background. It
 * only has a weak reference to the permit: if the program no longer references the permit, the
 * lease is no longer renewed.
 */
final class Lease {
  private final Settings settings;
  private final String id;
  private final WeakReference<Permit> permit;
  private Reply reply;
  private long leaseMs; // of the next refresh
  private boolean isOver; // released, or known to be lost
  private boolean isRenewed;
  private boolean isCounted; // as lost
  private boolean isFailing; // the last renewal was not answered
  private Runnable onLost; // null: no notice
  private Future<?> renewal;
  private Future<?> expiry;

  Lease(Settings settings, String id, Permit permit, Reply reply) {
    this.settings = settings;
    this.id = id;
    this.permit = new WeakReference<>(permit);
    this.reply = reply;
    leaseMs = settings.firstLeaseMs();
  }

  /** The end in ms by the server's clock; -1: permanent. */
  synchronized long expiresAt() {
    return reply.number("expires_at");
  }

  /** Nanoseconds until its end, for the program: so it notices a loss. */
  synchronized long remaining() {
    if (!isOver && untilLost() == 0) {
      countLoss();
    }
    return left();
  }

  /** Nanoseconds until its end. */
  synchronized long left() {
    return isOver ? 0 : reply.remaining();
  }

  /** Nanoseconds after which the server has freed the permit by itself. */
  synchronized long longestNs() {
    return leaseMs == 0 ? Settings.UNLIMITED_NS : left();
  }

  /** From the next refresh on, the lease is permanent, if this is requested. */
  synchronized void confirm() {
    leaseMs = settings.leaseMs();
  }

  /**
   * From now on, renews the lease in the background, or not, and runs this on a background thread
   * if the permit is lost (null: nothing).
   */
  synchronized void keep(boolean isRenewed, Runnable onLost) {
    this.isRenewed = isRenewed;
    this.onLost = onLost;
    plan();
  }

  /** The holder releases the permit. This is no loss. Returns whether no loss was known. */
  synchronized boolean finish() {
    boolean wasHeld = !isOver;
    isOver = true;
    plan();
    return wasHeld;
  }

  /** Counts the loss, once. */
  synchronized void countLoss() {
    if (!isCounted) {
      isCounted = true;
      settings.gate().counts().lost.increment();
    }
  }

  /** Counts the loss, logs it, and calls what the program has set for it. */
  synchronized void reportLoss() {
    countLoss();
    log("lost", null);
    if (onLost != null) {
      settings.gate().background().run(onLost);
    }
  }

  /** Starts the lease anew. Throws a LostException. */
  void refresh() {
    var calls = settings.gate().calls();
    refreshed(calls.call("semaphore/refresh", settings.keys(), arguments(), true));
  }

  /** As {@link #refresh}, but ends by this instant, and after an interrupt. */
  void refresh(long end) throws InterruptedException {
    var retry = new Retry(settings.key(), end - System.nanoTime(), true);
    refreshed(
        settings.gate().calls().repeat("semaphore/refresh", settings.keys(), arguments(), retry));
  }

  private synchronized List<Object> arguments() {
    return List.of(id, leaseMs);
  }

  private synchronized void refreshed(Reply reply) {
    isFailing = false;
    if (reply.word().equals("lost")) {
      lose();
      throw new LostException(settings.key(), id);
    }
    this.reply = reply;
    plan();
  }

  private synchronized void lose() {
    if (!isOver) {
      reportLoss();
    }
    finish();
  }

  /** Sets the timers: renews when a third of the time that is left is over. */
  private void plan() {
    cancel(renewal);
    cancel(expiry);
    if (isOver || reply.remaining() == Long.MAX_VALUE || !isRenewed && onLost == null) {
      settings.gate().leases().remove(this);
      return;
    }
    settings.gate().leases().add(this);
    Background background = settings.gate().background();
    if (isRenewed) {
      renewal = renewAfter(Math.min(left(), settings.leaseNs()) / 3);
    }
    expiry = background.after(untilLost(), this::expire);
  }

  /**
   * The machine was suspended, or its wall clock has made a step forward. In a renewed lease the
   * server knows which.
   */
  synchronized void wake() {
    if (isRenewed && !isOver) {
      cancel(renewal);
      renewal = renewAfter(0);
    } else {
      expire();
    }
  }

  private Future<?> renewAfter(long pauseNs) {
    return settings.gate().servers().runAfter(pauseNs, new Renewal());
  }

  private final class Renewal implements CallQueue.Call {
    @Override
    public boolean isWanted() {
      if (permit.get() == null) {
        finish();
        return false;
      }
      return true;
    }

    @Override
    public String script() {
      return "semaphore/refresh";
    }

    @Override
    public List<String> keys() {
      return settings.keys();
    }

    @Override
    public List<?> arguments() {
      return Lease.this.arguments();
    }

    @Override
    public void answered(Reply reply) {
      try {
        refreshed(reply);
        settings.gate().counts().renewed.increment();
      } catch (LostException lost) {
        // It is reported.
      }
    }

    @Override
    public void failed(Exception failure) {
      renewLater(failure);
    }
  }

  private synchronized void renewLater(Exception failed) {
    if (isOver || !isRenewed || settings.gate().isClosed()) {
      return;
    }
    if (!isFailing) {
      isFailing = true;
      log("not renewed yet", failed);
    }
    long pauseMs = Math.min(Math.max(settings.leaseMs() / 10, 5), 1_000);
    renewal = renewAfter(MILLISECONDS.toNanos(pauseMs));
  }

  private void log(String what, Exception failed) {
    String text = settings.key() + ": the permit of the id " + id + " is " + what;
    settings.gate().warn(text, failed);
  }

  private synchronized void expire() {
    if (untilLost() == 0) { // otherwise it was refreshed meanwhile
      lose();
    }
  }

  /** Nanoseconds until the permit is lost without an answer of the server. */
  private synchronized long untilLost() {
    return isOver ? 0 : isRenewed ? reply.remainingAwake() : reply.remaining();
  }

  private static void cancel(Future<?> timer) {
    if (timer != null) {
      timer.cancel(false);
    }
  }
}
