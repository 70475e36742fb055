package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;

/** The calls of one id for its permits, until they are granted or the caller gives up. */
final class Request {
  private static final int PATIENCE_MS = 15_000; // the server keeps a waiter's place for this time
  private static final int PATIENCE_UNHEARD_MS = 3_000; // if messages do not reach the client
  private static final int RECHECK_MS = 5_000; // a waiter asks again after this time at the latest
  private static final long LONGEST_OUTAGE_NS = SECONDS.toNanos(10);

  /** For the last call, which leaves the line when the timeout has ended. */
  static final long LEAVING_NS = MILLISECONDS.toNanos(40);

  final String id;
  final String secret = Ids.word(13);
  private final Settings settings;
  private final Luagate gate;
  private final int permits;
  private final BlockingQueue<Reply> messages = new LinkedBlockingQueue<>();
  private Retry retry;
  private long ticket;
  private Reply queued; // the last reply of this word
  private Reply last; // the last reply; null: none
  private volatile LuagateException failure; // ends the wait
  private volatile boolean isAbandoned;

  Request(Settings settings, int permits) {
    this.settings = settings;
    this.permits = settings.serverPermits(permits);
    gate = settings.gate();
    id = settings.newId();
  }

  Permit tryAcquire() {
    gate.checkOpen();
    retry = new Retry(settings.key(), gate.callTimeoutNs(), false);
    try {
      long end = System.nanoTime() + gate.callTimeoutNs();
      Reply reply = checked(call(), 0);
      while (isGrant(reply) && !reply.isGranted()) { // it was read after the lease had ended
        if (System.nanoTime() - end >= 0) {
          throw new UnreachableException(settings.key() + Retry.TOO_LATE, null);
        }
        reply = checked(call(), 0);
      }
      if (isGrant(reply)) {
        Permit permit = permit(reply);
        permit.makePermanent();
        return permit;
      }
      gate.counts().denied.increment();
      throw settings.denied(reply);
    } catch (DeniedException | AboveLimitException refused) {
      if (retry.isUnsure()) {
        abandon();
      }
      throw refused;
    } catch (LimitMismatchException mismatch) {
      // It may hold permits.
      Release.await(List.of(abandon()), System.nanoTime() + gate.callTimeoutNs());
      throw mismatch;
    } catch (RuntimeException failed) {
      abandon();
      throw failed;
    }
  }

  private Reply call() {
    return gate.calls()
        .callOnceMore("semaphore/acquire", settings.keys(), arguments(0, ""), retry);
  }

  /** Waits in line until {@code end}, by {@link System#nanoTime}. */
  Permit acquire(Duration timeout, long end) throws InterruptedException {
    return acquire(timeout, end, true);
  }

  /**
   * The same.
   *
   * @param isAlone whether the caller waits for nothing else: the lease can be permanent at once
   */
  Permit acquire(Duration timeout, long end, boolean isAlone) throws InterruptedException {
    gate.checkOpen();
    if (Thread.interrupted()) {
      throw new InterruptedException();
    }
    retry = new Retry(settings.key(), LONGEST_OUTAGE_NS, false);
    gate.pending().begin();
    gate.inbox().add(this);
    try {
      Reply granted = waitInLine(end);
      if (granted == null) {
        granted = leave();
      }
      if (granted.isGranted()) {
        gate.inbox().remove(this);
        Permit permit = permit(granted);
        if (isAlone) {
          permit.makePermanent(timeout, end);
        }
        return permit;
      }
      denied();
    } catch (LineFullException | AboveLimitException refused) {
      if (refused instanceof LineFullException) {
        gate.counts().denied.increment();
        gate.counts().lineFull.increment();
      }
      denied();
      throw refused;
    } catch (Unanswered lost) {
      abandonWait();
      throw timedOut(timeout, lost.getCause());
    } catch (LimitMismatchException mismatch) {
      Release.await(List.of(abandonWait()), end); // it may hold permits
      throw mismatch;
    } catch (RuntimeException | InterruptedException failed) {
      abandonWait();
      throw failed;
    } finally {
      gate.pending().end();
    }
    throw timedOut(timeout, null);
  }

  /** The id has no permits and no place in line, but an earlier call may reach the server late. */
  private void denied() {
    if (retry.isUnsure()) {
      abandonWait();
    } else {
      gate.inbox().remove(this);
    }
  }

  private TimedOutException timedOut(Duration timeout, Throwable cause) {
    gate.counts().denied.increment();
    if (last == null) {
      return new TimedOutException(settings.key(), timeout, cause, 0, 0, 0, -1);
    }
    boolean isDenied = last.word().equals("denied");
    return new TimedOutException(
        settings.key(),
        timeout,
        cause,
        last.integer("in_use"),
        last.integer("limit"),
        isDenied ? last.integer("waiting") : queued == last ? last.integer("position") : 0,
        isDenied ? last.number("next_expiry") : -1);
  }

  /** A call that counts as lost may still be granted later. That grant is then released. */
  private CompletableFuture<Void> abandonWait() {
    isAbandoned = true;
    var released = abandon();
    gate.background().after(MILLISECONDS.toNanos(PATIENCE_MS), () -> gate.inbox().remove(this));
    return released;
  }

  /** Releases in the background what the id has. */
  CompletableFuture<Void> abandon() {
    return Release.start(settings, id, longestNs(), retry);
  }

  /** The time after which the server has freed the id by itself. */
  private long longestNs() {
    return Math.max(settings.leaseNs(), MILLISECONDS.toNanos(PATIENCE_MS));
  }

  /** Ends the wait with this exception. */
  void fail(LuagateException failure) {
    this.failure = failure;
    messages.add(new Reply(Inbox.ASK_AGAIN, Map.of(), System.nanoTime()));
  }

  /** A signed message for this id, or a reminder to ask again. */
  void deliver(Reply message) {
    if (!isAbandoned) {
      messages.add(message);
    } else if (!message.word().equals(Inbox.ASK_AGAIN)) {
      abandon(); // a grant that comes too late
    }
  }

  /** Returns a grant, or null if the timeout ended. */
  private Reply waitInLine(long end) throws InterruptedException, Unanswered {
    while (System.nanoTime() - end < 0) {
      Reply granted;
      try {
        granted = askInLine(end);
      } catch (Unanswered lost) {
        long now = System.nanoTime();
        if (now - end >= 0) {
          throw lost;
        }
        granted = sleep(Math.min(end, now + retry.pause(lost)));
      }
      if (granted != null) {
        return granted;
      }
    }
    return null;
  }

  /** Asks, and sleeps until it is time to ask again. Returns a grant or null. */
  private Reply askInLine(long end) throws InterruptedException, Unanswered {
    retry.begin(); // it may be that no server is known
    Subscription subscription = gate.servers().node(settings.key()).subscription;
    String channel = subscription.channel(end);
    int patienceMs = channel.isEmpty() ? PATIENCE_UNHEARD_MS : PATIENCE_MS;
    String address = channel.isEmpty() ? "" : channel + "#" + secret;
    long attemptEnd = Math.min(end, retry.attemptEnd());
    Reply reply = ask(patienceMs, address, attemptEnd);
    if (isGrant(reply)) {
      return reply.isGranted() ? reply : null; // it may have been read after the lease had ended
    }
    queued = reply;
    ticket = reply.number("ticket");
    subscription.verify();
    long pauseMs = Math.min(reply.number("retry_after"), RECHECK_MS);
    return sleep(Math.min(end, reply.instant() + MILLISECONDS.toNanos(pauseMs)));
  }

  /** Takes a grant whose message has not arrived yet, or leaves the line. */
  private Reply leave() throws InterruptedException, Unanswered {
    if (retry.isUnanswered()) {
      throw new Unanswered("no reply before the timeout", retry.cause(), false);
    }
    return ask(0, "", System.nanoTime() + LEAVING_NS);
  }

  /** One attempt of the script {@code acquire}. With patience, it joins the line. */
  private Reply ask(int patienceMs, String address, long end)
      throws InterruptedException, Unanswered {
    checkFailure();
    List<Object> argv = arguments(patienceMs, address);
    Reply reply;
    try {
      reply = gate.calls().attempt("semaphore/acquire", settings.keys(), argv, end);
    } catch (Unanswered | InterruptedException lost) {
      retry.unanswered();
      throw lost;
    }
    retry.answered();
    return checked(reply, patienceMs);
  }

  private void checkFailure() {
    gate.checkOpen();
    if (failure != null) {
      throw failure;
    }
  }

  private List<Object> arguments(int patienceMs, String address) {
    var arguments =
        new HashMap<String, Object>(
            Map.of(
                "id", id,
                "permits", permits,
                "limit", settings.limit(),
                "lease_ms", settings.firstLeaseMs(),
                "wait_ms", patienceMs,
                "inbox", address,
                "ticket", ticket));
    if (settings.maxWaiting() != 0 || settings.atLeastMs() != 0 || settings.headStartMs() != 0) {
      arguments.put("max_waiting", settings.maxWaiting());
      arguments.put("at_least_ms", settings.atLeastMs());
    }
    if (settings.headStartMs() != 0) {
      arguments.put("head_start_ms", settings.headStartMs());
    }
    return gate.calls().scripts.script("semaphore/acquire").inOrder(arguments);
  }

  private Reply checked(Reply reply, int patienceMs) {
    settings.checkLimit(reply.integer("limit"));
    if (reply.word().equals("above_limit")) {
      throw settings.aboveLimit(permits, reply);
    }
    if (reply.word().equals("denied") && patienceMs > 0) {
      throw settings.lineFull(reply);
    }
    last = reply;
    return reply;
  }

  private static boolean isGrant(Reply reply) {
    return reply.word().equals("granted") || reply.word().equals("held");
  }

  private Permit permit(Reply granted) {
    gate.counts().grant(ticket != 0);
    Reply usage = granted.fields().containsKey("limit") ? granted : queued;
    return new Permit(settings, id, ticket, usage.integer("limit"), granted, retry.isUnsure());
  }

  /** Sleeps until a message grants the permits; null when it is time to ask again. */
  private Reply sleep(long next) throws InterruptedException {
    while (true) {
      Reply message = messages.poll(next - System.nanoTime(), NANOSECONDS);
      checkFailure();
      if (message == null || queued == null) {
        return null;
      }
      if (message.word().equals(Inbox.ASK_AGAIN)) {
        if (queued.instant() - message.instant() > 0) {
          continue; // it has asked since then
        }
        return null;
      }
      long later = message.number("now") - queued.number("now");
      if (later < 0) {
        continue; // older than the last reply
      }
      if (isNew(message.number("fence")) && message.number("permits") == permits) {
        // The message may have been delayed: its arrival alone would give an end that is too late.
        long sent = queued.instant() + MILLISECONDS.toNanos(later);
        var granted = new Reply("granted", message.fields(), Math.min(sent, message.instant()));
        return granted.isGranted() ? granted : null;
      }
      if (message.number("fence") == 0 && message.number("expires_at") == -1) {
        throw new RevokedException(settings.key(), id);
      }
      if (message.number("fence") == 0) { // a hint
        long delay = Math.max(0, message.number("expires_at") - message.number("now"));
        next = Math.min(next, message.instant() + MILLISECONDS.toNanos(delay));
      }
    }
  }

  /**
   * Whether the server gave this fence after the place in line: the ticket is the next fence of
   * that time, lower by the head start (both in µs).
   */
  private boolean isNew(long fence) {
    return fence > ticket + 1_000 * settings.headStartMs();
  }
}
