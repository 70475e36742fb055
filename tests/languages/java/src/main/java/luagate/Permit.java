package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import luagate.Scripts.Reply;

/** So many permits of a semaphore, held until they are released or their lease ends. */
public final class Permit implements AutoCloseable {
  /** The permit is not held any more. */
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

  /** How many permits it is. */
  public int permits() {
    return (int) lease.number("permits");
  }

  /** A number that every later grant exceeds. */
  public long fence() {
    return lease.number("fence");
  }

  /** The place in line with which it waited; 0 where it was granted at once or that is unknown. */
  public long ticket() {
    return ticket;
  }

  /** When the lease ends, in ms on the server's clock. */
  public long expiresAt() {
    return lease.number("expires_at");
  }

  /** What is left of the lease, by this machine's monotonic clock. */
  public Duration remaining() {
    return Duration.ofNanos(lost ? 0 : Math.max(0, lease.deadline() - System.nanoTime()));
  }

  /** Whether the lease is over: others may hold what it held. */
  public boolean isLost() {
    return remaining().isZero();
  }

  /** Nanoseconds until a third of the lease is over. */
  long due() {
    return remaining().toNanos() - MILLISECONDS.toNanos(semaphore.leaseMs) / 3 * 2;
  }

  /** Begins the lease anew; do so whenever a third of it is over. */
  public void refresh() {
    Reply reply = semaphore.refresh(id);
    if (reply.word().equals("lost")) {
      lost = true;
      throw new LostException(id);
    }
    lease = reply;
  }

  /** Gives it back, and says whether it was still held. */
  public boolean release() {
    lost = true;
    return semaphore.release(id);
  }

  /** Gives it back. */
  @Override
  public void close() {
    release();
  }
}
