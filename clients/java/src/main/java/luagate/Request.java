package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.MINUTES;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeoutException;
import luagate.Scripts.Reply;
import redis.clients.jedis.exceptions.JedisException;

/** The calls of one id for its permits, until they are granted or the caller gives up. */
final class Request {
  private static final int PATIENCE_MS = 15_000; // the server keeps a waiter's place for this time
  private static final int PATIENCE_UNHEARD_MS = 60_000; // if messages do not reach the client
  private static final int RECHECK_MS = 5_000; // a waiter asks again after this time at the latest

  final String id;
  final String secret = UUID.randomUUID().toString();
  private final Settings settings;
  private final int permits;
  private final BlockingQueue<Reply> messages = new LinkedBlockingQueue<>();
  private long ticket;
  private volatile RuntimeException failure; // ends the wait
  private volatile boolean isAbandoned;

  Request(Settings settings, int permits) {
    this(settings, permits, UUID.randomUUID().toString());
  }

  Request(Settings settings, int permits, String id) {
    Settings.check(permits >= 1, "permits", permits, "an integer from 1 on");
    this.settings = settings;
    this.permits = permits;
    this.id = id;
  }

  Optional<Permit> tryAcquire() {
    try {
      Reply reply = ask(0, "");
      return isGranted(reply) ? Optional.of(permit(reply)) : Optional.empty();
    } catch (RuntimeException failed) {
      abandon();
      throw failed;
    }
  }

  /** Waits in line until {@code end}, by {@link System#nanoTime}. */
  Permit acquire(Duration timeout, long end) throws InterruptedException, TimeoutException {
    Inbox inbox = settings.gate().inbox();
    String channel = inbox.channel(timeout);
    inbox.add(this);
    try {
      Reply granted = waitInLine(channel, end);
      if (granted == null) {
        granted = ask(0, ""); // takes a grant whose message has not arrived yet, or leaves the line
      }
      inbox.remove(this);
      if (isGranted(granted)) {
        return permit(granted);
      }
    } catch (LineFullException full) {
      inbox.remove(this); // the id has no permits and no place in line
      throw full;
    } catch (Exception failed) {
      // A call that counts as lost may still be granted later. That grant is then released.
      isAbandoned = true;
      CompletableFuture.delayedExecutor(1, MINUTES).execute(() -> inbox.remove(this));
      abandon();
      throw failed;
    }
    throw new TimeoutException(
        "%s: %d of %d permits were not granted within %s"
            .formatted(settings.key(), permits, settings.limit(), timeout));
  }

  /** Ends the wait with this exception. */
  void fail(RuntimeException failure) {
    this.failure = failure;
    messages.add(Inbox.ASK_AGAIN);
  }

  /** A signed message for this id, or {@link Inbox#ASK_AGAIN}. */
  void deliver(Reply message) {
    if (!isAbandoned) {
      messages.add(message);
    } else if (message != Inbox.ASK_AGAIN) {
      CompletableFuture.runAsync(this::abandon); // a grant that comes too late
    }
  }

  /**
   * Releases the permits of the id, or its place in line. If that fails, the lease or the waiter's
   * deadline on the server ends.
   */
  void abandon() {
    try {
      settings.gate().call(settings, "release", Map.of("id", id, "keep", 0));
    } catch (JedisException unreachable) {
      // The caller gets the exception that made it give up.
    }
  }

  /** Returns a grant, or null if the timeout ended. */
  private Reply waitInLine(String channel, long end) throws InterruptedException {
    int patience = channel.isEmpty() ? PATIENCE_UNHEARD_MS : PATIENCE_MS;
    String address = channel.isEmpty() ? "" : channel + "#" + secret;
    while (System.nanoTime() - end < 0) {
      Reply reply = ask(patience, address);
      if (isGranted(reply)) {
        return reply;
      }
      Reply granted = sleep(reply, end);
      if (granted != null) {
        return granted;
      }
    }
    return null;
  }

  /** One call of the script {@code acquire}. With patience, it joins the line. */
  private Reply ask(int patienceMs, String inbox) {
    if (failure != null) {
      throw failure;
    }
    var arguments =
        new HashMap<String, Object>(
            Map.of(
                "id", id,
                "permits", permits,
                "limit", settings.limit(),
                "lease_ms", settings.leaseMs(),
                "wait_ms", patienceMs,
                "inbox", inbox,
                "ticket", ticket));
    long headStart = settings.headStart().toMillis();
    if (settings.maxWaiting() != 0 || !settings.atLeast().isZero() || headStart != 0) {
      arguments.put("max_waiting", settings.maxWaiting());
      arguments.put("at_least_ms", settings.atLeast().toMillis());
    }
    if (headStart != 0) {
      arguments.put("head_start_ms", headStart);
    }
    Reply reply = settings.gate().call(settings, "acquire", arguments);
    switch (reply.word()) {
      case "queued" -> ticket = reply.number("ticket");
      case "above_limit" -> throw aboveLimit(settings, permits, reply);
      case "denied" -> {
        if (patienceMs > 0) {
          int waiting = (int) reply.number("waiting");
          throw new LineFullException(settings.key(), waiting, settings.maxWaiting());
        }
      }
      default -> {}
    }
    return reply;
  }

  /** Whether the reply or message grants the permits, and the lease has not ended yet. */
  private static boolean isGranted(Reply reply) {
    boolean isGrant = reply.word().equals("granted") || reply.word().equals("held");
    return isGrant && reply.deadline() - System.nanoTime() > 0;
  }

  private Permit permit(Reply granted) {
    return new Permit(settings, id, ticket, granted);
  }

  /** Sleeps until a message grants the permits; null when it is time to ask again. */
  private Reply sleep(Reply queued, long end) throws InterruptedException {
    long pause = MILLISECONDS.toNanos(Math.min(queued.number("retry_after"), RECHECK_MS));
    long next = Math.min(end, queued.instant() + pause);
    while (true) {
      Reply message = messages.poll(next - System.nanoTime(), NANOSECONDS);
      if (message == null || failure != null) {
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
        return isGranted(granted) ? granted : null;
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
    return fence > ticket + 1_000 * settings.headStart().toMillis();
  }

  static IllegalArgumentException aboveLimit(Settings settings, int permits, Reply reply) {
    return new IllegalArgumentException(
        "%s: %d permits are more than the limit in force. Accepted: 1 to %d. Ask for fewer"
            .formatted(settings.key(), permits, reply.number("limit")));
  }
}
