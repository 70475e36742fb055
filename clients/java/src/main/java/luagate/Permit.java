package luagate;

import java.lang.ref.Cleaner;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.Map;
import luagate.Scripts.Reply;

/** Permits of one semaphore, held until they are released or their lease ends. */
public final class Permit implements AutoCloseable {
  private static final Cleaner UNREFERENCED = Cleaner.create();

  final Settings settings;
  final Lease lease;
  private final String id;
  private final int permits;
  private final long fence;
  private final long ticket;

  Permit(Settings settings, String id, long ticket, Reply granted) {
    this.settings = settings;
    this.id = id;
    this.ticket = ticket;
    permits = (int) granted.number("permits");
    fence = granted.number("fence");
    Lease kept = new Lease(settings, id, granted);
    lease = kept;
    keep();
    UNREFERENCED.register(this, () -> kept.renew(false));
  }

  /** Renews the lease and reports a loss as the settings say. */
  void keep() {
    var itself = new WeakReference<>(this);
    lease.onLost(settings.onLost() == null ? null : () -> notifyOf(itself));
    lease.renew(settings.isRenewed());
  }

  private static void notifyOf(WeakReference<Permit> itself) {
    Permit permit = itself.get();
    if (permit != null) {
      permit.settings.onLost().accept(permit);
    }
  }

  /** The id of the holder. */
  public String id() {
    return id;
  }

  /** The number of permits. */
  public int permits() {
    return permits;
  }

  /** Higher than the fence of every earlier grant. Pass it to what the permit protects. */
  public long fence() {
    return fence;
  }

  /** The ticket with which it waited in line; 0: it did not wait. */
  public long ticket() {
    return ticket;
  }

  /** The end of the lease, in ms by the server's clock. */
  public long expiresAt() {
    return lease.expiresAt();
  }

  /** The time until the lease ends, by this machine's clock: never longer than on the server. */
  public Duration remaining() {
    return Duration.ofNanos(lease.remaining());
  }

  /** Whether another client may hold it by now. Sends no call. */
  public boolean isLost() {
    return lease.remaining() == 0;
  }

  /** Starts the lease anew. Throws {@link LostException}. */
  public void refresh() {
    lease.refresh();
  }

  /** Releases the permits. Returns whether they were still held. A second call does no harm. */
  public boolean release() {
    lease.finish();
    var reply = settings.gate().call(settings, "release", Map.of("id", id, "keep", 0));
    return reply.word().equals("released");
  }

  /** Releases the permits. */
  @Override
  public void close() {
    release();
  }
}
