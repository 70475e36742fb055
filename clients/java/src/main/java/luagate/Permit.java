package luagate;

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
  private final boolean isUnsure; // a call of its id was not answered, and may arrive late
  private volatile int permits;

  Permit(
      Settings settings, String id, long ticket, int limit, Reply granted, boolean isUnsure) {
    this.isUnsure = isUnsure;
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
      settings.gate().counts().denied.increment();
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
    if (release(1, retry()).word().equals("gone")) {
      if (lease.finish()) {
        lease.countLoss();
      }
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
    boolean wasHeld = lease.finish();
    Retry retry = retry();
    try {
      boolean isReleased = release(0, retry).word().equals("released");
      isReleased |= wasHeld && retry.isUnsure(); // by the copy whose reply was lost
      if (!isReleased && wasHeld) {
        lease.countLoss();
      }
      releaseAgain();
      return isReleased;
    } catch (ClosedException closed) {
      throw closed;
    } catch (RuntimeException failed) {
      Release.start(settings, id, lastsNs).thenRun(this::releaseAgain);
      throw failed;
    }
  }

  /** After a release: releases the id again later, if a call of it may arrive late. */
  void releaseAgain() {
    if (isUnsure) {
      Release.again(settings, id, settings.leaseNs());
    }
  }

  private Retry retry() {
    return new Retry(settings.key(), settings.gate().callTimeoutNs(), true);
  }

  private Reply release(int keep, Retry retry) {
    settings.gate().checkOpen();
    return settings.gate().calls()
        .call("semaphore/release", settings.keys(), List.of(id, keep), retry);
  }

  /** Releases the permits in the background. Returns what is done when this has ended. */
  CompletableFuture<Void> abandon() {
    long lastsNs = lease.longestNs();
    lease.finish();
    var released = Release.start(settings, id, lastsNs);
    released.thenRun(this::releaseAgain);
    return released;
  }

  /**
   * Releases the permits, and does not wait for the reply; only a new connection, if one is needed,
   * is awaited for a second at most. Later calls of this gate for this name run after it. If it
   * fails, this is logged, and it is repeated in the background. If it finds that the permit was
   * lost, this is reported as any other loss: see {@link Semaphore#onLost}. A second call does no
   * harm.
   */
  @Override
  public void close() {
    try {
      settings.gate().posted().post(this);
    } catch (ClosedException failed) {
      String text = settings.key() + ": the release of the id " + id + " failed";
      settings.gate().warn(text, failed);
    }
  }

  @Override
  public String toString() {
    return "Permit[%s, id=%s, permits=%d, fence=%d, remaining=%s]"
        .formatted(settings.key(), id, permits, fence, remaining());
  }
}
