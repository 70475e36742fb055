package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import luagate.Scripts.Reply;

/**
 * The lease of a permit: its end by this machine's clock, and its renewal in the background. It
 * does not refer to the permit, so that a permit that the program no longer references is no longer
 * renewed.
 */
final class Lease {
  private final Settings settings;
  private final String id;
  private Reply reply;
  private boolean isOver; // released, or known to be lost
  private boolean isRenewed;
  private Runnable onLost; // null: nobody is told
  private Future<?> renewal;
  private Future<?> expiry;

  Lease(Settings settings, String id, Reply reply) {
    this.settings = settings;
    this.id = id;
    this.reply = reply;
  }

  /** The end in ms by the server's clock. */
  synchronized long expiresAt() {
    return reply.number("expires_at");
  }

  /** Nanoseconds until its end. */
  synchronized long remaining() {
    return isOver ? 0 : Math.max(0, reply.deadline() - System.nanoTime());
  }

  /** From now on, renews the lease in the background, or not. */
  synchronized void renew(boolean isRenewed) {
    this.isRenewed = isRenewed;
    plan();
  }

  /** From now on, this is run on a background thread if the permit is lost. */
  synchronized void onLost(Runnable onLost) {
    this.onLost = onLost;
    plan();
  }

  /** The holder releases the permit. This is no loss. */
  synchronized void finish() {
    isOver = true;
    plan();
  }

  /** Starts the lease anew. */
  void refresh() {
    var arguments = Map.of("id", id, "lease_ms", settings.leaseMs());
    refreshed(settings.gate().call(settings, "refresh", arguments));
  }

  private synchronized void refreshed(Reply reply) {
    if (reply.word().equals("lost")) {
      lose();
      throw new LostException(settings.key(), id);
    }
    this.reply = reply;
    plan();
  }

  private synchronized void lose() {
    if (!isOver && onLost != null) {
      CompletableFuture.runAsync(onLost);
    }
    finish();
  }

  /** Sets the timers: renews when a third of the time that is left is over. */
  private void plan() {
    cancel(renewal);
    cancel(expiry);
    if (isOver) {
      return;
    }
    if (isRenewed) {
      renewal = after(Math.min(remaining(), leaseNs()) / 3, this::startRenewal);
    }
    if (isRenewed || onLost != null) {
      expiry = after(remaining(), this::expire);
    }
  }

  private long leaseNs() {
    return MILLISECONDS.toNanos(settings.leaseMs());
  }

  private Future<?> after(long pauseNs, Runnable work) {
    return settings.gate().timer().schedule(work, pauseNs, NANOSECONDS);
  }

  private void startRenewal() {
    settings.gate().renewals().execute(this::sendRefresh);
  }

  private void sendRefresh() {
    try {
      refresh();
    } catch (LostException lost) {
      // It is reported.
    } catch (RuntimeException failed) {
      synchronized (this) {
        if (!isOver && isRenewed) {
          long pause = Math.min(Math.max(settings.leaseMs() / 10, 5), 1_000);
          renewal = after(MILLISECONDS.toNanos(pause), this::startRenewal);
        }
      }
    }
  }

  private synchronized void expire() {
    if (remaining() == 0) { // otherwise it was refreshed meanwhile
      lose();
    }
  }

  private static void cancel(Future<?> timer) {
    if (timer != null) {
      timer.cancel(false);
    }
  }
}
