package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.net.ConnectException;
import java.net.UnknownHostException;
import java.util.Deque;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
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

  /** What a call does with its connection. */
  interface Work<T> {
    T on(Connection connection);
  }

  private static final class ClientClosed extends JedisException {
    private static final long serialVersionUID = 1;

    ClientClosed() {
      super("the client of Jedis is closed. Close the gate first");
    }
  }

  private record Idle(Connection connection, long since) {}

  private final Luagate gate;
  private final Pool<Connection> pool;
  final Subscription subscription;
  final CallQueue queue;
  private final Deque<Idle> idle = new ConcurrentLinkedDeque<>();
  private final java.util.concurrent.Semaphore calls; // the others wait, until their deadlines
  private final java.util.concurrent.Semaphore openings =
      new java.util.concurrent.Semaphore(MOST_OPENINGS);
  private final Set<CompletableFuture<Connection>> awaited = ConcurrentHashMap.newKeySet();
  private volatile boolean isClosed;

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
   * @param isInterruptible whether an interrupt or {@code close} ends the call
   */
  <T> T call(Work<T> work, long end, boolean isInterruptible)
      throws InterruptedException, Unanswered {
    if (!calls.tryAcquire() && !calls.tryAcquire(end - System.nanoTime(), NANOSECONDS)) {
      throw new Unanswered("the earlier calls were not answered either", null, false);
    }
    try {
      Connection connection = take(end, isInterruptible);
      try {
        return run(connection, work, end, isInterruptible);
      } finally {
        giveBack(connection);
      }
    } finally {
      calls.release();
    }
  }

  private <T> T run(Connection connection, Work<T> work, long end, boolean isInterruptible)
      throws InterruptedException, Unanswered {
    Watch.Call call = gate.watch().begin(connection, end, isInterruptible);
    try {
      long leftMs = NANOSECONDS.toMillis(end - System.nanoTime());
      connection.setSoTimeout((int) Math.max(1, Math.min(leftMs, Integer.MAX_VALUE)));
      return work.on(connection);
    } catch (JedisConnectionException lost) {
      closeIdle(); // these are as old, so they are probably lost too
      if (isInterruptible && Thread.interrupted()) {
        throw new InterruptedException();
      }
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

  private Connection take(long end, boolean isInterruptible)
      throws InterruptedException, Unanswered {
    closeOld();
    Idle kept = idle.pollFirst();
    if (kept != null) {
      return kept.connection;
    }
    if (!openings.tryAcquire(end - System.nanoTime(), NANOSECONDS)) {
      throw new Unanswered("no connection could be opened in time", null, false);
    }
    var opening = new CompletableFuture<Connection>();
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

  private void open(CompletableFuture<Connection> opening) {
    try {
      Connection connection = connect();
      if (!opening.complete(connection)) {
        giveBack(connection);
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

  private void giveBack(Connection connection) {
    if (connection.isBroken() || pool.isClosed()) {
      close(connection);
      return;
    }
    idle.addFirst(new Idle(connection, System.nanoTime()));
    if (isClosed) {
      closeIdle();
    }
  }

  /** Closes what was not used for long: a firewall may have dropped it. */
  private void closeOld() {
    Idle oldest = idle.peekLast();
    while (oldest != null && System.nanoTime() - oldest.since >= LONGEST_IDLE_NS) {
      if (idle.removeLastOccurrence(oldest)) {
        close(oldest.connection);
      }
      oldest = idle.peekLast();
    }
  }

  private void closeIdle() {
    for (Idle kept = idle.pollFirst(); kept != null; kept = idle.pollFirst()) {
      close(kept.connection);
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
