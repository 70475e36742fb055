package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.MINUTES;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;
import luagate.Inbox.Wait;
import luagate.Scripts.Reply;
import redis.clients.jedis.exceptions.JedisException;

/** Permits, of which at most {@code limit} are held at once. */
public final class Semaphore {
  private static final int WAIT_MS = 15_000; // who has not asked for so long leaves the line

  private final Luagate gate;
  private final List<String> keys;
  private final int limit;
  private final long leaseMs;

  Semaphore(Luagate gate, String kind, String name, int limit, Duration lease) {
    if (lease.toMillis() < 1) {
      throw new IllegalArgumentException("lease: takes 1 ms or more");
    }
    this.gate = gate;
    this.limit = limit;
    leaseMs = lease.toMillis();
    keys =
        Stream.of("", ".holders", ".queue")
            .map(part -> gate.prefix + ":" + kind + part + ":{" + name + "}")
            .toList();
  }

  /** Somebody took the place in line away. */
  public static final class RevokedException extends RuntimeException {
    RevokedException(String id) {
      super("the place in line was revoked: " + id);
    }
  }

  /** A permit, if one is free and nobody waits. */
  public Optional<Permit> tryAcquire() {
    return tryAcquire(1);
  }

  /** So many permits, if they are free and nobody waits. */
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

  /** A permit, as soon as it is this caller's turn. */
  public Permit acquire(Duration timeout) throws InterruptedException, TimeoutException {
    return acquire(1, timeout);
  }

  /** So many permits, as soon as it is this caller's turn. */
  public Permit acquire(int permits, Duration timeout)
      throws InterruptedException, TimeoutException {
    long end = System.nanoTime() + timeout.toNanos();
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
        boolean over = System.nanoTime() - end >= 0;
        // With 0 a grant that is on its way is taken, or the line is left.
        Reply reply = ask(id, permits, over ? 0 : WAIT_MS, address, ticket);
        if (reply.word().equals("denied")) {
          throw new TimeoutException(keys.get(0) + ": not granted within " + timeout);
        }
        if (reply.word().equals("queued")) {
          ticket = reply.number("ticket");
          reply = sleep(id, permits, reply, messages, end);
        }
        if (reply != null) {
          inbox.waits.remove(id);
          return new Permit(this, id, ticket, reply);
        }
      }
    } catch (Exception failed) {
      // A call that was given up as lost may still arrive and be granted, which is then released.
      Runnable abandon = () -> abandon(id);
      inbox.waits.put(id, new Wait(secret, late -> CompletableFuture.runAsync(abandon)));
      CompletableFuture.delayedExecutor(1, MINUTES).execute(() -> inbox.waits.remove(id));
      abandon(id);
      throw failed;
    }
  }

  /** Sleeps until a message grants the permits; null when it is time to ask again. */
  private static Reply sleep(
      String id, int permits, Reply queued, BlockingQueue<Reply> messages, long end)
      throws InterruptedException {
    long ahead = queued.number("position") - 1;
    // With n in front after n seconds: if they are dead, nobody else sees that a lease has ended.
    long longest = 1000 * (ahead == 0 ? 5 : Math.min(ahead, 5));
    long pause = MILLISECONDS.toNanos(Math.min(queued.number("retry_after"), longest));
    long next = Math.min(end, System.nanoTime() + pause);
    Reply message;
    while ((message = messages.poll(next - System.nanoTime(), NANOSECONDS)) != null) {
      long later = message.number("now") - queued.number("now");
      if (later < 0) {
        continue; // old news
      }
      if (message.number("fence") > queued.number("ticket")
          && message.number("permits") == permits) {
        // From the earlier of the two instants that are known: its receipt, and when it was sent.
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
    return null;
  }

  /** Begins the lease of this id anew. */
  Reply refresh(String id) {
    return gate.scripts.call("semaphore/refresh", keys, Map.of("id", id, "lease_ms", leaseMs));
  }

  /** Gives back what this id holds, or its place in line; whether it held. */
  boolean release(String id) {
    var arguments = Map.of("id", id, "keep", 0);
    return gate.scripts.call("semaphore/release", keys, arguments).word().equals("released");
  }

  private void abandon(String id) {
    try {
      release(id);
    } catch (JedisException unreachable) {
      // Then its patience or its lease ends.
    }
  }

  private Reply ask(String id, int permits, int waitMs, String inbox, long ticket) {
    var arguments =
        Map.of(
            "id", id,
            "permits", permits,
            "limit", limit,
            "lease_ms", leaseMs,
            "wait_ms", waitMs,
            "inbox", inbox,
            "ticket", ticket);
    Reply reply = gate.scripts.call("semaphore/acquire", keys, arguments);
    if (reply.word().equals("above_limit")) {
      throw new IllegalArgumentException(
          permits + " permits are more than the limit " + reply.number("limit"));
    }
    return reply;
  }
}
