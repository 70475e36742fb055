package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;

/**
 * The subscription to the gate's inbox on one server. Until it is open, and if server or proxy have
 * no Pub/Sub, its channel is empty: waiters then only ask again.
 */
final class Subscription implements Library.Listener {
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
  private Library.Messages messages; // of the last connection; null: none
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
        } catch (ErrorReply refused) {
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
    Library.Messages opened = node.server().open(gate.inbox().channel, this);
    try {
      synchronized (this) {
        messages = opened;
        if (isClosed) {
          return;
        }
      }
      gate.background().after(LONGEST_OPENING_NS, () -> endUnconfirmed(opened));
      opened.read();
    } finally {
      opened.close();
    }
  }

  private synchronized void endUnconfirmed(Library.Messages silent) {
    if (messages == silent && !isConfirmed) {
      silent.close();
    }
  }

  @Override
  public void confirmed() {
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
  public void received(String text) {
    gate.inbox().receive(text);
  }

  /** Checks that the server knows this subscriber and accepts messages, then tells the waiters. */
  private void check() {
    String own = gate.inbox().channel;
    try {
      boolean isHeard = isHeard(call("PUBSUB", "NUMSUB", own));
      if (isHeard) {
        call("PUBLISH", own, "");
      }
      long now = System.nanoTime();
      complete(isHeard ? own : "");
      gate.inbox().askAgain(now);
    } catch (ErrorReply refused) {
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

  private Object call(String command, String... words) throws InterruptedException, Unanswered {
    long end = System.nanoTime() + LONGEST_CHECK_NS;
    var bytes = Calls.bytes(List.of(words));
    return node.call(List.of(), link -> link.execute(command, bytes), end, true);
  }

  /**
   * Checks whether the connection is alive, now and then while callers wait. Does not wait for the
   * result: a dead connection is closed {@link #LONGEST_REPLY_NS} later, and another one opened.
   */
  void verify() {
    long now = System.nanoTime();
    Library.Messages asked;
    synchronized (this) {
      if (!isConfirmed || now - verified < CHECK_PERIOD_NS) {
        return;
      }
      verified = now;
      asked = messages;
    }
    try {
      asked.confirm(); // it can block, which pins a virtual thread that holds a monitor
    } catch (Unanswered lost) {
      asked.close();
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

  private synchronized boolean isUnheard() {
    return channel.isDone() && !channel.isCompletedExceptionally() && channel.join().isEmpty();
  }

  private synchronized void endSilent(Library.Messages asked, long since) {
    if (messages == asked && heard - since < 0) {
      asked.close();
    }
  }

  /** Closes the connection. The thread opens another one. */
  synchronized void reconnect() {
    if (messages != null) {
      messages.close();
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
