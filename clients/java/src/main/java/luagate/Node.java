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

/** The connections of a gate to one server. */
final class Node {
  private static final int MOST_OPENINGS = 16; // also those that a caller no longer waits for
  private static final long LONGEST_IDLE_NS = SECONDS.toNanos(30);
  private static final long LONGEST_READING_NS = SECONDS.toNanos(1); // of posted releases

  /** What a call does with its connection. */
  interface Work<T> {
    T on(Link link) throws InterruptedException, Unanswered;
  }

  private static final class ClientClosed extends Exception {
    private static final long serialVersionUID = 1;

    ClientClosed() {
      super("the client is closed. Close the gate first");
    }
  }

  private final Luagate gate;
  private final Library.Server server;
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

  Node(Luagate gate, Library.Server server) {
    this.gate = gate;
    this.server = server;
    subscription = new Subscription(gate, this);
    queue = new CallQueue(gate);
    calls = new java.util.concurrent.Semaphore(server.mostConnections());
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
    Watch.Call call = gate.watch().begin(link.connection, end, isInterruptible);
    try {
      link.connection.begin(end, isInterruptible);
      return work.on(link);
    } catch (Unanswered lost) {
      link.isBroken = true;
      if (isInterruptible && Thread.interrupted()) { // only this connection was closed
        throw new InterruptedException();
      }
      closeIdle(); // these are as old, so they are probably lost too
      broken.incrementAndGet();
      throw lost;
    } catch (UnexpectedReplyException unexpected) {
      link.isBroken = true; // the next reply may belong to this call
      throw unexpected;
    } catch (ErrorReply refused) {
      if (refused.is("NOSCRIPT") || !ServerError.of(refused).isPassing()) {
        throw refused;
      }
      if (ServerError.of(refused).isReadOnly()) { // the address belongs to another server by now
        link.isBroken = true;
        closeIdle();
        subscription.reconnect();
      }
      throw new Unanswered(refused.getMessage(), refused.ofLibrary(), false);
    } finally {
      if (!gate.watch().end(call)) {
        link.isBroken = true;
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
    if (cause instanceof ErrorReply refused) {
      if (!ServerError.of(refused).isPassing()) {
        throw refused;
      }
      return new Unanswered(refused.getMessage(), refused.ofLibrary(), false);
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
      Link link = new Link(this, server().connect());
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

  /** The server, to open a connection. */
  Library.Server server() throws ClientClosed {
    if (server.isClosed()) {
      throw new ClientClosed();
    }
    return server;
  }

  private void giveBack(Link link) {
    if (link.isBroken || server.isClosed()) {
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

  boolean isGone() {
    return server.isClosed();
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
