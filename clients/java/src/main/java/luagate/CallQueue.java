package luagate;

import java.util.ArrayDeque;
import java.util.Queue;

/**
 * Makes the renewals and releases of one server in the background, a few at a time. Each server has
 * its own, so one that does not answer holds up no call to another one.
 */
final class CallQueue {
  private static final int MOST_THREADS = 4;

  private final Luagate gate;
  private final Queue<Runnable> waiting = new ArrayDeque<>();
  private int threads;

  CallQueue(Luagate gate) {
    this.gate = gate;
  }

  synchronized void add(Runnable call) {
    waiting.add(call);
    if (threads < MOST_THREADS) {
      threads++;
      gate.background().run(this::work);
    }
  }

  private void work() {
    for (Runnable call = next(); call != null; call = next()) {
      try {
        call.run();
      } catch (RuntimeException | Error failed) { // the next calls are made all the same
        Thread current = Thread.currentThread();
        current.getUncaughtExceptionHandler().uncaughtException(current, failed);
      }
    }
  }

  /** The next call; null: the thread ends. */
  private synchronized Runnable next() {
    Runnable call = gate.background().isClosed() ? null : waiting.poll();
    if (call == null) {
      threads--;
    }
    return call;
  }
}
