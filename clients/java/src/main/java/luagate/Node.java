package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.net.ConnectException;
import java.net.UnknownHostException;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.util.Pool;

/**
 * The connections of a gate to one server. They are made with the settings of the client of Jedis,
 * but are not taken from its pool: to borrow from a pool can block for longer than a call may last.
 */
final class Node {
  private static final int MOST_OPENINGS = 16; // also those that a caller no longer waits for
  private static final long LONGEST_IDLE_NS = SECONDS.toNanos(30);
  private static final long LONGEST_READING_NS = SECONDS.toNanos(1); // of posted releases

  /** What a call does with its connection. */
  interface Work<T> {
    T on(Link link) throws InterruptedException;
  }

  private static final class ClientClosed extends JedisException {
    private static final long serialVersionUID = 1;

    ClientClosed() {
      super("the client of Jedis is closed. Close the gate first");
    }
  }

  private final Luagate gate;
  private final Pool<Connection> pool;
  final Subscription subscription;
  final CallQueue queue;
  private final Deque<Link> idle = new ConcurrentLinkedDeque<>();
  private final java.util.concurrent.Semaphore calls; // the others wait, until their deadlines
  private final java.util.concurrent.Semaphore openings =
      new java.util.concurrent.Semaphore(MOST_OPENINGS);
  private final AtomicInteger broken = new AtomicInteger(); // and not replaced yet
  private final Set<CompletableFuture<Link>> awaited = ConcurrentHashMap.newKeySet();
  private volatile boolean isClosed;
  volatile boolean knowsRelease; // its last posted release was run by the hash of the script

  Node(Luagate gate, Pool<Connection> pool) {
    this.gate = gate;
    this.pool = pool;
    subscription = new Subscription(gate, this);
    queue = new CallQueue(gate);
    int most = pool.getMaxTotal() < 0 ? Integer.MAX_VALUE : Math.max(1, pool.getMaxTotal());
    calls = new java.util.concurrent.Semaphore(most);
  }

  /**
   * Makes one attempt of a call, which ends by this instant. An error of the server is thrown as it
   * is, unless it means that nothing was run.
   *
   * @param names a connection with posted releases of these names is taken first
   * @param isInterruptible whether an interrupt or {@code close} ends the call
   */
  <T> T call(List<String> names, Work<T> work, long end, boolean isInterruptible)
      throws InterruptedException, Unanswered {
    if (!calls.tryAcquire() && !calls.tryAcquire(end - System.nanoTime(), NANOSECONDS)) {
      throw new Unanswered("the earlier calls were not answered either", null, false);
    }
    try {
      Link link = take(names, end, isInterruptible);
      try {
        return run(link, work, end, isInterruptible);
      } finally {
        giveBack(link);
      }
    } finally {
      calls.release();
    }
  }

  /** Reads in the background the replies to releases that were posted this long ago. */
  void readPosted(long unreadNs) {
    for (Link link : idle) {
      if (!link.hasPosted() || System.nanoTime() - link.since < unreadNs) {
        continue;
      }
      if (!calls.tryAcquire()) {
        return; // one of the calls in progress may read them
      }
      if (idle.remove(link)) {
        gate.background().run(() -> readPosted(link));
      } else {
        calls.release();
      }
    }
  }

  private void readPosted(Link link) {
    Work<Void> reading =
        to -> {
          to.readPosted();
          return null;
        };
    try {
      run(link, reading, System.nanoTime() + LONGEST_READING_NS, false);
    } catch (InterruptedException | Unanswered lost) {
      // The releases are repeated.
    } finally {
      giveBack(link);
      calls.release();
    }
  }

  private <T> T run(Link link, Work<T> work, long end, boolean isInterruptible)
      throws InterruptedException, Unanswered {
    Connection connection = link.connection;
    Watch.Call call = gate.watch().begin(connection, end, isInterruptible);
    try {
      long leftMs = NANOSECONDS.toMillis(end - System.nanoTime());
      connection.setSoTimeout((int) Math.max(1, Math.min(leftMs, Integer.MAX_VALUE)));
      return work.on(link);
    } catch (JedisConnectionException lost) {
      connection.setBroken();
      closeIdle(); // these are as old, so they are probably lost too
      if (isInterruptible && Thread.interrupted()) {
        throw new InterruptedException();
      }
      broken.incrementAndGet();
      throw new Unanswered(lost.getMessage(), lost, false);
    } catch (JedisDataException refused) {
      if (refused instanceof JedisNoScriptException || !ServerError.of(refused).isPassing()) {
        throw refused;
      }
      if (ServerError.of(refused).isReadOnly()) { // the address belongs to another server by now
        connection.setBroken();
        closeIdle();
        subscription.reconnect();
      }
      throw new Unanswered(refused.getMessage(), refused, false);
    } finally {
      if (!gate.watch().end(call)) {
        connection.setBroken();
      }
    }
  }

  private Link take(List<String> names, long end, boolean isInterruptible)
      throws InterruptedException, Unanswered {
    closeOld();
    Link kept = idle(names);
    if (kept != null) {
      return kept;
    }
    if (!openings.tryAcquire(end - System.nanoTime(), NANOSECONDS)) {
      throw new Unanswered("no connection could be opened in time", null, false);
    }
    var opening = new CompletableFuture<Link>();
    gate.background().run(() -> open(opening));
    try {
      if (isInterruptible) {
        awaited.add(opening);
        gate.checkOpen();
      }
      return opening.get(end - System.nanoTime(), NANOSECONDS);
    } catch (TimeoutException silent) {
      throw new Unanswered("no connection could be opened in time", null, false);
    } catch (ExecutionException failed) {
      throw unopened(failed.getCause());
    } finally {
      awaited.remove(opening);
      opening.cancel(false);
    }
  }

  private Link idle(List<String> names) {
    for (String name : names) {
      for (Posted one : gate.posted().of(name)) {
        Link link = one.on();
        if (link != null && idle.remove(link)) {
          return link;
        }
      }
    }
    return idle.pollFirst();
  }

  private static Unanswered unopened(Throwable cause) {
    if (cause instanceof JedisDataException refused && !ServerError.of(refused).isPassing()) {
      throw refused;
    }
    if (cause instanceof LuagateException closed) {
      throw closed;
    }
    Throwable root = cause;
    while (root.getCause() != null || root.getSuppressed().length > 0) {
      root = root.getCause() != null ? root.getCause() : root.getSuppressed()[0]; // of each address
    }
    String text = cause.getMessage() + " (" + root.getMessage() + ")";
    return new Unanswered(text, cause, isUnsent(root));
  }

  /** Whether no server listens at the address. */
  private static boolean isUnsent(Throwable cause) {
    return cause instanceof ConnectException
        || cause instanceof UnknownHostException
        || cause instanceof ClientClosed;
  }

  private void open(CompletableFuture<Link> opening) {
    try {
      Link link = new Link(this, connect());
      if (broken.getAndUpdate(count -> Math.max(0, count - 1)) > 0) {
        gate.counts().reconnects.increment();
      }
      if (!opening.complete(link)) {
        giveBack(link);
      }
    } catch (Exception failed) {
      opening.completeExceptionally(failed);
    } finally {
      openings.release();
    }
  }

  /** A new connection. Blocks for as long as the settings of the client of Jedis permit. */
  Connection connect() throws Exception {
    if (pool.isClosed()) {
      throw new ClientClosed();
    }
    return pool.getFactory().makeObject().getObject();
  }

  private void giveBack(Link link) {
    if (link.connection.isBroken() || pool.isClosed()) {
      link.close();
      return;
    }
    link.since = System.nanoTime();
    idle.addFirst(link);
    if (isClosed) {
      closeIdle();
    }
  }

  /** Closes what was not used for long: a firewall may have dropped it. */
  private void closeOld() {
    Link oldest = idle.peekLast();
    while (oldest != null && System.nanoTime() - oldest.since >= LONGEST_IDLE_NS) {
      if (idle.removeLastOccurrence(oldest)) {
        oldest.close();
      }
      oldest = idle.peekLast();
    }
  }

  private void closeIdle() {
    for (Link kept = idle.pollFirst(); kept != null; kept = idle.pollFirst()) {
      kept.close();
    }
  }

  static void close(Connection connection) {
    try {
      connection.disconnect();
    } catch (JedisException alreadyBroken) {
      // It is closed all the same.
    }
  }

  boolean isGone() {
    return pool.isClosed();
  }

  /** Ends the callers that wait for a connection. */
  void endWaits() {
    subscription.endWaits();
    awaited.forEach(opening -> opening.completeExceptionally(new ClosedException()));
  }

  /** Closes the connections. */
  void close() {
    isClosed = true;
    closeIdle();
    subscription.close();
  }
}
