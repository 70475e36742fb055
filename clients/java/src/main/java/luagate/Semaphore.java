package luagate;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * Grants permits, of which at most {@code limit} are held at a time. Threads may share it. Nothing
 * is re-entrant. A permit has a lease of 30 s, which is renewed in the background until the permit
 * is released; {@link #lease} changes this. Each setting returns another object, and throws {@link
 * InvalidException} if its value is not accepted.
 *
 * <p>Every call ends with {@link ClosedException} after the gate was closed. A call with no
 * deadline of its own blocks for a round trip, at most for the call timeout of the gate, then throws
 * {@link UnreachableException}.
 */
public final class Semaphore {
  private static final int PAGE = 1_000;

  final Settings settings;

  Semaphore(Settings settings) {
    this.settings = settings;
  }

  /**
   * The same semaphore with another lease, 1 ms to a hundred years. A permit ends after this time,
   * unless {@link #autoRenew} is set or {@link Permit#refresh} is called.
   */
  public Semaphore lease(Duration lease) {
    return new Semaphore(settings.withLease(lease));
  }

  /** The same semaphore, which renews leases in the background until the permit is released. */
  public Semaphore autoRenew() {
    return new Semaphore(settings.withAutoRenew());
  }

  /**
   * The same semaphore with permanent leases: a permit ends only by a release or by
   * {@link #revoke}, also if the program has ended.
   */
  public Semaphore permanent() {
    return new Semaphore(settings.withPermanentLease());
  }

  /**
   * The same semaphore with a bounded line: if this number of callers or more wait, {@code acquire}
   * throws {@link LineFullException}. 0: no bound.
   */
  public Semaphore maxWaiting(int waiters) {
    return new Semaphore(settings.withMaxWaiting(waiters));
  }

  /**
   * The same semaphore with a minimum hold, 1 ms to a hundred years: a permit that is released
   * earlier than this after its grant stays in use until then. The lease is not shorter. Zero: no
   * minimum.
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
   * The same semaphore with a label at the start of each id, {@code <label>/<uuid>}: 1 to 163 bytes
   * without white space. It shows who holds a permit.
   */
  public Semaphore label(String label) {
    return new Semaphore(settings.withLabel(label));
  }

  /**
   * The same semaphore, which accepts no other limit in force than its own: calls throw {@link
   * LimitMismatchException}. Otherwise the limit of the first grant, or of {@link #resize}, counts.
   */
  public Semaphore strict() {
    return new Semaphore(settings.withStrict());
  }

  /**
   * The same semaphore with a notice: this is called once, on a background thread, if a permit is
   * lost, and not if it is released.
   */
  public Semaphore onLost(Consumer<Permit> notify) {
    return new Semaphore(settings.withOnLost(notify));
  }

  /** Returns a permit at once. See {@link #tryAcquire(int)}. */
  public Permit tryAcquire() {
    return tryAcquire(1);
  }

  /**
   * Returns this number of permits at once. Throws {@link DeniedException} if they are not free or
   * a caller waits in line. After an exception nothing stays held.
   */
  public Permit tryAcquire(int permits) {
    return new Request(settings, permits).tryAcquire();
  }

  /** Waits in line for a permit, without a time limit. See {@link #acquire(int, Duration)}. */
  public Permit acquire() throws InterruptedException {
    return acquire(1);
  }

  /** Waits in line for permits, without a time limit. See {@link #acquire(int, Duration)}. */
  public Permit acquire(int permits) throws InterruptedException {
    return new Request(settings, permits)
        .acquire(null, System.nanoTime() + Settings.UNLIMITED_NS);
  }

  /** Waits in line for a permit. See {@link #acquire(int, Duration)}. */
  public Permit acquire(Duration timeout) throws InterruptedException {
    return acquire(1, timeout);
  }

  /**
   * Waits in line for this number of permits: first come, first served. Blocks for the timeout at
   * most, zero to a hundred years, then throws {@link TimedOutException}. An outage of the server
   * of up to 10 s does not end a wait, and the caller keeps its place; after that it throws
   * {@link UnreachableException}. Throws {@link LineFullException} and {@link RevokedException}.
   * After an exception nothing stays held, also after an interrupt; a release that is necessary for
   * this is sent in the background.
   */
  public Permit acquire(int permits, Duration timeout) throws InterruptedException {
    long end = Settings.deadline(timeout);
    return new Request(settings, permits).acquire(timeout, end);
  }

  /**
   * Sets the limit for all callers and pins it: it no longer expires when the semaphore is unused.
   * A lower limit takes no permit away.
   */
  public Resized resize(int limit) {
    Settings.check(limit >= 1, "limit", limit, "an integer from 1 to " + Settings.MOST);
    Settings.check(!settings.isLock(), "resize", "the lock " + settings.key(), "a semaphore");
    Reply reply = call("resize", List.of(limit, -1));
    return new Resized(reply.integer("old"), reply.integer("new"), reply.integer("in_use"));
  }

  /** Returns the limit, the holders and the waiters. Long lists need several round trips. */
  public Inspection inspect() {
    var holders = new ArrayList<Inspection.Holder>();
    var waiters = new ArrayList<Inspection.Waiter>();
    for (int offset = 0; ; offset += PAGE) {
      Reply page = call("inspect", List.of(offset, PAGE));
      int before = holders.size() + waiters.size();
      holders.addAll(Inspection.holders(page));
      waiters.addAll(Inspection.waiters(page));
      int shown = offset + PAGE;
      boolean isEmpty = holders.size() + waiters.size() == before;
      if (isEmpty || shown >= page.number("holder_count") && shown >= page.number("waiter_count")) {
        return Inspection.of(page, holders, waiters);
      }
    }
  }

  /**
   * Takes away what this id has: its permits, or its place in line. Returns whether it had any. A
   * holder notices it at its next refresh; a waiter gets a {@link RevokedException}.
   */
  public boolean revoke(String id) {
    Settings.checkId(id);
    return !call("release", List.of(id, 0)).word().equals("gone");
  }

  private Reply call(String script, List<?> argv) {
    return settings.gate().calls().call("semaphore/" + script, settings.keys(), argv, false);
  }

  @Override
  public String toString() {
    return "Semaphore[%s, limit=%d]".formatted(settings.key(), settings.limit());
  }
}
