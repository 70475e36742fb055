package luagate;

import java.lang.System.Logger.Level;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * Permits of one semaphore, held until they are released or their lease ends. Threads may share it.
 * In a {@code try} block, the release at the end never replaces the exception or the result of the
 * work.
 */
public final class Permit implements AutoCloseable {
  /** The remaining time of a permanent lease: about 292 years. */
  public static final Duration FOREVER = Duration.ofNanos(Long.MAX_VALUE);

  final Settings settings;
  final Lease lease;
  private final String id;
  private final long fence;
  private final long ticket;
  private final int limit;
  private volatile int permits;

  Permit(Settings settings, String id, long ticket, int limit, Reply granted) {
    this.settings = settings;
    this.id = id;
    this.ticket = ticket;
    this.limit = limit;
    permits = granted.integer("permits");
    fence = granted.number("fence");
    lease = new Lease(settings, id, this, granted);
    keep();
  }

  /** Renews the lease and reports a loss as the settings say. */
  void keep() {
    Consumer<Permit> onLost = settings.onLost();
    lease.keep(settings.isRenewed(), onLost == null ? null : new Notice(this, onLost)::send);
  }

  /** Tells the program that the permit is lost, if it still references the permit. */
  private record Notice(WeakReference<Permit> permit, Consumer<Permit> onLost) {
    Notice(Permit permit, Consumer<Permit> onLost) {
      this(new WeakReference<>(permit), onLost);
    }

    void send() {
      Permit lost = permit.get();
      if (lost != null) {
        onLost.accept(lost);
      }
    }
  }

  /** The id of the holder. */
  public String id() {
    return id;
  }

  /** The number of permits. A writer of a {@link RwLock} has all 2147483647. */
  public int permits() {
    return permits;
  }

  /**
   * Higher than the fence of every earlier grant, unless the server's clock goes back. Pass it to
   * what the permit protects.
   */
  public long fence() {
    return fence;
  }

  /** The ticket with which it waited in line; empty: it did not wait. */
  public Optional<Ticket> ticket() {
    return ticket == 0 ? Optional.empty() : Optional.of(new Ticket(ticket));
  }

  /**
   * The limit in force, as the last reply to this acquire reported it. After a wait this can be
   * older than the grant.
   */
  public int limit() {
    return limit;
  }

  /** The end of the lease, in ms by the server's clock; -1: permanent. */
  public long expiresAt() {
    return lease.expiresAt();
  }

  /**
   * The time until the lease ends, by this machine's clock: never longer than on the server. {@link
   * #FOREVER} if it is permanent. Sends nothing.
   */
  public Duration remaining() {
    return Duration.ofNanos(lease.remaining());
  }

  /** Whether another client may hold it by now. Sends nothing. */
  public boolean isLost() {
    return lease.remaining() == 0;
  }

  /**
   * Throws {@link LostException} if the permit is lost. As the last statement of a {@code try}
   * block it reports a loss during the block. Asks the server by a {@link #refresh}; if the server
   * does not answer, only this machine's clock counts.
   */
  public void check() {
    try {
      refresh();
    } catch (UnreachableException unreachable) {
      checkClock();
    }
  }

  /** As {@link #refresh}, as a part of a wait with this timeout. */
  void refresh(Duration timeout, long end) throws InterruptedException {
    long latest = System.nanoTime() + settings.gate().callTimeoutNs();
    try {
      lease.refresh(Math.min(end + Request.LEAVING_NS, latest));
    } catch (UnreachableException silent) {
      if (System.nanoTime() - end < 0) {
        throw silent;
      }
      throw new TimedOutException(settings.key(), timeout, silent.getCause(), 0, 0, 0, -1);
    }
  }

  /** Makes the lease permanent, if this is requested. The caller knows now that it holds it. */
  void makePermanent() {
    if (settings.isPermanent()) {
      try {
        lease.confirm();
        lease.refresh();
      } catch (RuntimeException failed) {
        lease.finish();
        throw failed;
      }
    }
  }

  /** As {@link #makePermanent()}, as a part of a wait with this timeout. */
  void makePermanent(Duration timeout, long end) throws InterruptedException {
    if (settings.isPermanent()) {
      try {
        confirm(timeout, end);
      } catch (RuntimeException | InterruptedException failed) {
        lease.finish();
        throw failed;
      }
    }
  }

  /** Starts the lease anew as requested: a permanent one was an ordinary one until now. */
  void confirm(Duration timeout, long end) throws InterruptedException {
    lease.confirm();
    refresh(timeout, end);
  }

  void checkClock() {
    if (isLost()) {
      throw new LostException(settings.key(), id);
    }
  }

  /**
   * Starts the lease anew. Blocks for a round trip, at most for the call timeout of the gate.
   * Throws {@link LostException} or {@link UnreachableException}.
   */
  public void refresh() {
    settings.gate().checkOpen();
    lease.refresh();
  }

  /**
   * Turns a writer into a reader: other readers are granted, but no writer comes between. Blocks
   * for a round trip, at most for the call timeout of the gate. Throws {@link LostException} or
   * {@link UnreachableException}.
   */
  public void downgrade() {
    Settings.check(settings.isWriter(), "downgrade", settings.key(), "a permit of RwLock.write()");
    if (release(1).word().equals("gone")) {
      lease.finish();
      throw new LostException(settings.key(), id);
    }
    permits = 1;
  }

  /**
   * Releases the permits. Returns whether they were still held. A second call does no harm. Blocks
   * for a round trip, at most for the call timeout of the gate; an interrupt does not prevent it.
   * If the server does not answer, throws {@link UnreachableException}. After every exception, the
   * release continues in the background, unless the gate is closed.
   */
  public boolean release() {
    long lastsNs = lease.longestNs();
    lease.finish();
    try {
      return release(0).word().equals("released");
    } catch (ClosedException closed) {
      throw closed;
    } catch (RuntimeException failed) {
      Release.start(settings, id, lastsNs);
      throw failed;
    }
  }

  private Reply release(int keep) {
    settings.gate().checkOpen();
    return settings.gate().calls()
        .call("semaphore/release", settings.keys(), List.of(id, keep), true);
  }

  /** Releases the permits in the background. Returns what is done when this has ended. */
  CompletableFuture<Void> abandon() {
    long lastsNs = lease.longestNs();
    lease.finish();
    return Release.start(settings, id, lastsNs);
  }

  /** Releases the permits as {@link #release}, but only logs a failure. */
  @Override
  public void close() {
    try {
      release();
    } catch (RuntimeException failed) {
      String text = settings.key() + ": the release of the id " + id + " failed";
      Luagate.LOGGER.log(Level.WARNING, text, failed);
    }
  }

  @Override
  public String toString() {
    return "Permit[%s, id=%s, permits=%d, fence=%d, remaining=%s]"
        .formatted(settings.key(), id, permits, fence, remaining());
  }
}
