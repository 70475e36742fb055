package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/**
 * Closes the connection of a call that must end: its caller was interrupted, the gate was closed,
 * or its time is over and the socket's timeout did not end it. So a caller can read the reply on
 * its own thread, although a read of a socket cannot be interrupted.
 */
final class Watch {
  private static final long PERIOD_NS = MILLISECONDS.toNanos(20);
  private static final int QUIET_PERIODS = 50; // then it sleeps until the next call

  /** A call in progress, on the current thread. */
  static final class Call {
    private final Thread caller = Thread.currentThread();
    private final Library.Connection connection;
    private final long end;
    private final boolean isInterruptible;
    private final AtomicBoolean isOver = new AtomicBoolean();

    private Call(Library.Connection connection, long end, boolean isInterruptible) {
      this.connection = connection;
      this.end = end;
      this.isInterruptible = isInterruptible;
    }
  }

  private final Set<Call> calls = ConcurrentHashMap.newKeySet();
  private final Thread thread = Background.daemon(this::run, "luagate-watch");
  private volatile boolean isAsleep;
  private volatile boolean endsAll;
  private volatile boolean isClosed;

  void start() {
    thread.start();
  }

  Call begin(Library.Connection connection, long end, boolean isInterruptible) {
    Call call = new Call(connection, end, isInterruptible);
    calls.add(call);
    if (isAsleep) {
      LockSupport.unpark(thread);
    }
    return call;
  }

  /** Returns false if the connection of the call was closed. */
  boolean end(Call call) {
    calls.remove(call);
    return call.isOver.compareAndSet(false, true);
  }

  /** Ends the calls that can be interrupted. */
  void endWaits() {
    endsAll = true;
    LockSupport.unpark(thread);
  }

  /** Ends all calls, and the thread. */
  Thread close() {
    isClosed = true;
    LockSupport.unpark(thread);
    return thread;
  }

  private void run() {
    for (int quiet = 0; !isClosed; ) {
      quiet = calls.isEmpty() ? quiet + 1 : 0;
      if (quiet > QUIET_PERIODS) {
        isAsleep = true;
        if (calls.isEmpty() && !isClosed) {
          LockSupport.park(this);
        }
        isAsleep = false;
      }
      LockSupport.parkNanos(this, PERIOD_NS);
      calls.forEach(this::check);
    }
    calls.forEach(this::check);
  }

  private void check(Call call) {
    boolean isInterrupted = call.isInterruptible && (endsAll || call.caller.isInterrupted());
    boolean mustEnd = isClosed || isInterrupted || call.end - System.nanoTime() <= 0;
    if (mustEnd && call.isOver.compareAndSet(false, true)) {
      call.connection.close();
    }
  }
}
