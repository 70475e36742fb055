package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.MINUTES;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import luagate.Inbox.Wait;
import luagate.Scripts.Reply;
import redis.clients.jedis.exceptions.JedisException;

/** Grants permits, of which at most {@code limit} are held at a time. */
public final class Semaphore {
  private static final int WAIT_MS = 15_000; // the server keeps a waiter's place for this time

  /** A name with a group, which is its hash tag. */
  private static final Pattern GROUPED = Pattern.compile("\\{[^{}]+\\}:[^{}]+");

  final Luagate gate;
  final List<String> keys;
  final int limit;
  final long leaseMs;
  final long atLeastMs;
  private final int maxWaiting;

  Semaphore(Luagate gate, String kind, String name, int limit, Duration lease) {
    this(gate, keys(gate, kind, name), limit, lease.toMillis(), 0, 0);
    if (leaseMs < 1) {
      throw new IllegalArgumentException("lease: got " + lease + ". Accepted: 1 ms or more");
    }
  }

  private Semaphore(
      Luagate gate, List<String> keys, int limit, long leaseMs, int maxWaiting, long atLeastMs) {
    this.gate = gate;
    this.keys = keys;
    this.limit = limit;
    this.leaseMs = leaseMs;
    this.maxWaiting = maxWaiting;
    this.atLeastMs = atLeastMs;
  }

  private static List<String> keys(Luagate gate, String kind, String name) {
    String tag = GROUPED.matcher(name).matches() ? name : "{" + name + "}";
    return Stream.of("", ".holders", ".queue")
        .map(part -> gate.prefix + ":" + kind + part + ":" + tag)
        .toList();
  }

  /**
   * The same semaphore with a bounded line: if this number of callers or more wait, {@code acquire}
   * throws {@link LineFullException}. 0: no bound.
   */
  public Semaphore maxWaiting(int waiters) {
    return new Semaphore(gate, keys, limit, leaseMs, waiters, atLeastMs);
  }

  /**
   * The same semaphore with a minimum hold: a permit that is released earlier than this after its
   * grant stays in use until then. The lease is not shorter. Zero: no minimum.
   */
  public Semaphore atLeast(Duration hold) {
    return new Semaphore(gate, keys, limit, leaseMs, maxWaiting, hold.toMillis());
  }

  /** The line has {@code maxWaiting} waiters or more. */
  public static final class LineFullException extends RuntimeException {
    private final int waiting;

    LineFullException(String key, int waiting, int maxWaiting) {
      super(
          "%s: %d callers wait in line already, and maxWaiting is %d. Try again later"
              .formatted(key, waiting, maxWaiting));
      this.waiting = waiting;
    }

    /** The number of waiters. */
    public int waiting() {
      return waiting;
    }
  }

  /** Another client removed this waiter from the line. */
  public static final class RevokedException extends RuntimeException {
    RevokedException(String id) {
      super("the wait of " + id + " was revoked");
    }
  }

  /** Returns a permit if one is free and no caller waits. */
  public Optional<Permit> tryAcquire() {
    return tryAcquire(1);
  }

  /** Returns this number of permits if they are free and no caller waits. */
  public Optional<Permit> tryAcquire(int permits) {
    String id = UUID.randomUUID().toString();
    try {
      Reply reply = ask(id, permits, 0, "", 0);
      return reply.word().equals("denied")
          ? Optional.empty()
          : Optional.of(new Permit(this, id, 0, reply));
    } catch (RuntimeException failed) {
      abandon(id);
      throw failed;
    }
  }

  /** Waits in line for a permit. */
  public Permit acquire(Duration timeout) throws InterruptedException, TimeoutException {
    return acquire(1, timeout);
  }

  /** Waits in line for this number of permits. */
  public Permit acquire(int permits, Duration timeout)
      throws InterruptedException, TimeoutException {
    long end = System.nanoTime() + timeout.toNanos();
    return acquire(new Permits(List.of()), permits, timeout, end);
  }

  /** Like {@code acquire}, and refreshes the permits {@code held} meanwhile. */
  Permit acquire(Permits held, int permits, Duration timeout, long end)
      throws InterruptedException, TimeoutException {
    Inbox inbox = gate.inbox();
    String channel = inbox.channel(timeout);
    String id = UUID.randomUUID().toString();
    String secret = UUID.randomUUID().toString();
    String address = channel.isEmpty() ? "" : channel + "#" + secret;
    var messages = new LinkedBlockingQueue<Reply>();
    inbox.waits.put(id, new Wait(secret, messages::add));
    try {
      long ticket = 0;
      while (true) {
        held.keep();
        boolean over = System.nanoTime() - end >= 0;
        // With 0 the call takes a grant whose message has not arrived yet, or leaves the line.
        Reply reply = ask(id, permits, over ? 0 : WAIT_MS, address, ticket);
        if (reply.word().equals("denied") && !over) {
          int waiting = (int) reply.number("waiting");
          throw new LineFullException(keys.get(0), waiting, maxWaiting);
        }
        if (reply.word().equals("denied")) {
          throw new TimeoutException(
              "%s: %d of %d permits were not granted within %s"
                  .formatted(keys.get(0), permits, limit, timeout));
        }
        if (reply.word().equals("queued")) {
          ticket = reply.number("ticket");
          reply = sleep(id, permits, reply, messages, end, held);
        }
        if (reply != null) {
          inbox.waits.remove(id);
          return new Permit(this, id, ticket, reply);
        }
      }
    } catch (LineFullException full) {
      inbox.waits.remove(id); // the id has no permits and no place in line
      throw full;
    } catch (Exception failed) {
      // A call that counts as lost may still be granted later. That grant is then released.
      Runnable abandon = () -> abandon(id);
      inbox.waits.put(id, new Wait(secret, late -> CompletableFuture.runAsync(abandon)));
      CompletableFuture.delayedExecutor(1, MINUTES).execute(() -> inbox.waits.remove(id));
      abandon(id);
      throw failed;
    }
  }

  /** Sleeps until a message grants the permits; null when it is time to ask again. */
  private static Reply sleep(
      String id,
      int permits,
      Reply queued,
      BlockingQueue<Reply> messages,
      long end,
      Permits held)
      throws InterruptedException {
    long ahead = queued.number("position") - 1;
    // If all n waiters ahead are dead, only this one notices the next lease end: ask after n s.
    long longest = 1000 * (ahead == 0 ? 5 : Math.min(ahead, 5));
    long pause = MILLISECONDS.toNanos(Math.min(queued.number("retry_after"), longest));
    long next = Math.min(end, System.nanoTime() + pause);
    while (true) {
      long most = Math.min(held.keep(), next - System.nanoTime());
      Reply message = messages.poll(most, NANOSECONDS);
      if (message == null && System.nanoTime() - next >= 0) {
        return null;
      }
      if (message == null) {
        continue; // only a refresh was due
      }
      long later = message.number("now") - queued.number("now");
      if (later < 0) {
        continue; // older than the last reply
      }
      if (message.number("fence") > queued.number("ticket")
          && message.number("permits") == permits) {
        // The lease counts from the earlier of two instants: the arrival, and the estimated sending.
        long sent = queued.instant() + MILLISECONDS.toNanos(later);
        var granted = new Reply("granted", message.fields(), Math.min(sent, message.instant()));
        return granted.deadline() - System.nanoTime() > 0 ? granted : null;
      }
      if (message.number("fence") == 0 && message.number("expires_at") == -1) {
        throw new RevokedException(id);
      }
      if (message.number("fence") == 0) { // a hint
        long delay = Math.max(0, message.number("expires_at") - message.number("now"));
        next = Math.min(next, message.instant() + MILLISECONDS.toNanos(delay));
      }
    }
  }

  /** Starts the lease of this id anew. */
  Reply refresh(String id) {
    return gate.scripts.call("semaphore/refresh", keys, Map.of("id", id, "lease_ms", leaseMs));
  }

  /** Releases the permits of this id, or its place in line. Returns whether it held permits. */
  boolean release(String id) {
    var arguments = Map.of("id", id, "keep", 0);
    return gate.scripts.call("semaphore/release", keys, arguments).word().equals("released");
  }

  /** Like {@code release}, without an exception if the server cannot be reached. */
  void abandon(String id) {
    try {
      release(id);
    } catch (JedisException unreachable) {
      // The lease, or the waiter's deadline on the server, ends.
    }
  }

  private Reply ask(String id, int permits, int waitMs, String inbox, long ticket) {
    var arguments =
        new HashMap<String, Object>(
            Map.of(
                "id", id,
                "permits", permits,
                "limit", limit,
                "lease_ms", leaseMs,
                "wait_ms", waitMs,
                "inbox", inbox,
                "ticket", ticket));
    if (maxWaiting != 0 || atLeastMs != 0) {
      arguments.put("max_waiting", maxWaiting);
      arguments.put("at_least_ms", atLeastMs);
    }
    Reply reply = gate.scripts.call("semaphore/acquire", keys, arguments);
    if (reply.word().equals("above_limit")) {
      throw aboveLimit(permits, reply);
    }
    return reply;
  }

  IllegalArgumentException aboveLimit(int permits, Reply reply) {
    return new IllegalArgumentException(
        "%s: %d permits are more than the limit in force. Accepted: 1 to %d. Ask for fewer"
            .formatted(keys.get(0), permits, reply.number("limit")));
  }
}
