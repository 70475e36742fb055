package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

/**
 * The subscription to the gate's inbox on one server. Until it is open, and if server or proxy have
 * no Pub/Sub, its channel is empty: waiters then only ask again.
 */
final class Subscription extends JedisPubSub {
  /** Then waiters go on without it. */
  private static final long LONGEST_OPENING_NS = SECONDS.toNanos(1);

  private static final long LONGEST_CHECK_NS = SECONDS.toNanos(1);
  private static final long CHECK_PERIOD_NS = SECONDS.toNanos(3); // while callers wait
  private static final long LONGEST_REPLY_NS = SECONDS.toNanos(2); // also if this process is slow
  private static final long FIRST_PAUSE_NS = MILLISECONDS.toNanos(50);
  private static final long LONGEST_PAUSE_NS = SECONDS.toNanos(5);

  private final Luagate gate;
  private final Node node;
  private Thread thread; // null: not started, or ended by a refusal
  private CompletableFuture<String> channel; // set whenever the thread runs
  private Connection connection;
  private long verified = System.nanoTime(); // when the server was last asked
  private volatile long heard; // when the server last confirmed it
  private volatile boolean isConfirmed;
  private volatile boolean wasConfirmed; // at any time
  private boolean isClosed;

  Subscription(Luagate gate, Node node) {
    this.gate = gate;
    this.node = node;
  }

  /**
   * The channel, or empty. Opens the subscription if necessary, and waits for it, but only until
   * this instant and not long.
   */
  String channel(long end) throws InterruptedException {
    CompletableFuture<String> awaited = started();
    long left = Math.min(end - System.nanoTime(), LONGEST_OPENING_NS);
    try {
      return awaited.isDone() ? awaited.get() : awaited.get(left, NANOSECONDS);
    } catch (TimeoutException silent) {
      return "";
    } catch (ExecutionException refused) {
      throw (LuagateException) refused.getCause();
    }
  }

  private synchronized CompletableFuture<String> started() {
    if (isClosed || gate.isClosed()) {
      throw new ClosedException();
    }
    if (thread == null) {
      channel = new CompletableFuture<>();
      thread = Background.daemon(this::run, "luagate-messages");
      thread.start();
    }
    return channel;
  }

  private void run() {
    try {
      for (int failures = 1; isWanted(); failures++) {
        try {
          subscribe();
        } catch (JedisDataException refused) {
          if (NoPermissionException.is(refused)) {
            fail(NoPermissionException.of(refused, gate.prefix(), ""));
            return;
          }
        } catch (Exception lost) {
          // It is opened again.
        }
        if (isConfirmed) {
          failures = 0;
          unconfirm();
        } else if (failures > 1) {
          complete("");
        }
        gate.pause(Math.min(FIRST_PAUSE_NS << Math.min(failures, 10), LONGEST_PAUSE_NS));
      }
    } catch (InterruptedException | ClosedException closed) {
      // The gate is closed.
    }
  }

  private synchronized boolean isWanted() {
    return thread == Thread.currentThread() && !gate.isClosed() && !node.isGone();
  }

  /** Reads messages until the connection ends. */
  private void subscribe() throws Exception {
    Connection opened = node.connect();
    try {
      synchronized (this) {
        connection = opened;
        if (isClosed) {
          return;
        }
      }
      gate.background().after(LONGEST_OPENING_NS, () -> endUnconfirmed(opened));
      proceed(opened, gate.inbox().channel);
    } finally {
      Node.close(opened);
    }
  }

  private synchronized void endUnconfirmed(Connection silent) {
    if (connection == silent && !isConfirmed) {
      Node.close(silent);
    }
  }

  @Override
  public void onSubscribe(String channel, int count) {
    heard = System.nanoTime();
    if (!isConfirmed) {
      isConfirmed = true;
      if (wasConfirmed) {
        gate.counts().reconnects.increment();
      }
      wasConfirmed = true;
      gate.background().run(this::check);
    }
  }

  @Override
  public void onMessage(String channel, String text) {
    gate.inbox().receive(text);
  }

  /** Checks that the server knows this subscriber and accepts messages, then tells the waiters. */
  private void check() {
    String own = gate.inbox().channel;
    var numsub = Calls.arguments(Command.PUBSUB, List.of("NUMSUB", own));
    var publish = Calls.arguments(Command.PUBLISH, List.of(own, ""));
    try {
      boolean isHeard = isHeard(call(numsub));
      if (isHeard) {
        call(publish);
      }
      long now = System.nanoTime();
      complete(isHeard ? own : "");
      gate.inbox().askAgain(now);
    } catch (JedisDataException refused) {
      if (NoPermissionException.is(refused)) {
        fail(NoPermissionException.of(refused, gate.prefix(), ""));
      } else {
        complete(""); // server or proxy do not know the command
      }
    } catch (InterruptedException | Unanswered | LuagateException lost) {
      reconnect();
    }
  }

  /** Whether the reply to PUBSUB NUMSUB counts a subscriber. A proxy may reply anything. */
  private static boolean isHeard(Object reply) {
    return reply instanceof List<?> pair
        && pair.size() > 1
        && pair.get(1) instanceof Long count
        && count > 0;
  }

  private Object call(CommandArguments command) throws InterruptedException, Unanswered {
    long end = System.nanoTime() + LONGEST_CHECK_NS;
    return node.call(List.of(), link -> link.execute(command), end, true);
  }

  /**
   * Checks whether the connection is alive, now and then while callers wait. Does not wait for the
   * result: a dead connection is closed {@link #LONGEST_REPLY_NS} later, and another one opened.
   */
  synchronized void verify() {
    long now = System.nanoTime();
    if (!isConfirmed || now - verified < CHECK_PERIOD_NS) {
      return;
    }
    verified = now;
    Connection asked = connection;
    try {
      subscribe(gate.inbox().channel); // not `ping`: Jedis can read a PONG before it expects one
    } catch (JedisException lost) {
      Node.close(asked);
      return;
    }
    gate.background().after(LONGEST_REPLY_NS, () -> endSilent(asked, now));
    gate.background().after(CHECK_PERIOD_NS, this::verifyAgain);
    if (isUnheard()) {
      gate.background().run(this::check);
    }
  }

  private void verifyAgain() {
    if (gate.inbox().hasWaiters()) {
      verify();
    }
  }

  private boolean isUnheard() {
    return channel.isDone() && !channel.isCompletedExceptionally() && channel.join().isEmpty();
  }

  private synchronized void endSilent(Connection asked, long since) {
    if (connection == asked && heard - since < 0) {
      Node.close(asked);
    }
  }

  /** Closes the connection. The thread opens another one. */
  synchronized void reconnect() {
    if (connection != null) {
      Node.close(connection);
    }
  }

  private synchronized void unconfirm() {
    isConfirmed = false;
    channel = new CompletableFuture<>();
  }

  private synchronized void complete(String usable) {
    if (channel.isDone() && !channel.isCompletedExceptionally()) {
      channel = CompletableFuture.completedFuture(usable);
    } else {
      channel.complete(usable);
    }
  }

  /** Ends the waits. The next one opens the subscription anew. */
  private synchronized void fail(LuagateException refused) {
    isConfirmed = false;
    channel.completeExceptionally(refused);
    thread = null;
    reconnect();
    gate.inbox().fail(refused);
  }

  /** Ends the callers that wait until it is open. */
  synchronized void endWaits() {
    if (channel != null) {
      channel.completeExceptionally(new ClosedException());
    }
  }

  /** Ends the subscription. */
  synchronized void close() {
    isClosed = true;
    reconnect();
  }

  /** The thread that reads messages, or null. */
  synchronized Thread thread() {
    return thread;
  }
}
