package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import luagate.Scripts.Reply;

/** Permits of one semaphore, held until they are released or their lease ends. */
public final class Permit implements AutoCloseable {
  /** The permit is no longer held. */
  public static final class LostException extends RuntimeException {
    LostException(String id) {
      super("the permit is lost: its lease ended, or it was released or revoked: " + id);
    }
  }

  private final Semaphore semaphore;
  private final String id;
  private final long ticket;
  private volatile Reply lease;
  private volatile boolean lost;

  Permit(Semaphore semaphore, String id, long ticket, Reply lease) {
    this.semaphore = semaphore;
    this.id = id;
    this.ticket = ticket;
    this.lease = lease;
  }

  /** The id under which it is held. */
  public String id() {
    return id;
  }

  /** The number of permits. */
  public int permits() {
    return (int) lease.number("permits");
  }

  /** A number that every later grant exceeds. */
  public long fence() {
    return lease.number("fence");
  }

  /** The ticket with which it waited in line; 0 if it was granted at once, or if unknown. */
  public long ticket() {
    return ticket;
  }

  /** The end of the lease, in ms by the server's clock. */
  public long expiresAt() {
    return lease.number("expires_at");
  }

  /** The time until the lease ends, by this machine's monotonic clock. */
  public Duration remaining() {
    return Duration.ofNanos(lost ? 0 : Math.max(0, lease.deadline() - System.nanoTime()));
  }

  /** Whether the lease has ended: another client may hold the permits. */
  public boolean isLost() {
    return remaining().isZero();
  }

  /** Nanoseconds until a third of the lease is over. */
  long due() {
    return remaining().toNanos() - MILLISECONDS.toNanos(semaphore.leaseMs) / 3 * 2;
  }

  /** Starts the lease anew. Call it when a third of the lease is over. */
  public void refresh() {
    Reply reply = semaphore.refresh(id);
    if (reply.word().equals("lost")) {
      lost = true;
      throw new LostException(id);
    }
    lease = reply;
  }

  /** Releases the permits. Returns whether they were still held. */
  public boolean release() {
    lost = true;
    return semaphore.release(id);
  }

  /** Releases the permits. */
  @Override
  public void close() {
    release();
  }
}
