package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor.DiscardPolicy;

/** The background threads of a gate. They are daemons, so they never keep the program alive. */
final class Background {
  private static final int CALLING_THREADS = 4; // the most

  private final ScheduledThreadPoolExecutor timer =
      new ScheduledThreadPoolExecutor(1, daemons("luagate-timer"), new DiscardPolicy());

  /** For renewals and releases. */
  private final ThreadPoolExecutor calls =
      new ThreadPoolExecutor(
          CALLING_THREADS,
          CALLING_THREADS,
          1,
          SECONDS,
          new LinkedBlockingQueue<>(),
          daemons("luagate-call"),
          new DiscardPolicy());

  /** For all that can block longer: new connections, notices of losses. */
  private final ThreadPoolExecutor work =
      new ThreadPoolExecutor(
          0,
          Integer.MAX_VALUE,
          1,
          SECONDS,
          new SynchronousQueue<>(),
          daemons("luagate-work"),
          new DiscardPolicy());

  Background() {
    timer.setRemoveOnCancelPolicy(true);
    calls.allowCoreThreadTimeOut(true);
  }

  static Thread daemon(Runnable work, String name) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    return thread;
  }

  private static ThreadFactory daemons(String name) {
    return work -> daemon(work, name);
  }

  /** Runs something that does not block, later. */
  Future<?> after(long pauseNs, Runnable task) {
    return timer.schedule(task, pauseNs, NANOSECONDS);
  }

  /** Makes a call of luagate later. */
  Future<?> callAfter(long pauseNs, Runnable call) {
    return after(pauseNs, () -> calls.execute(call));
  }

  /** Makes a call of luagate. */
  void call(Runnable call) {
    calls.execute(call);
  }

  /** Runs something that may block. */
  void run(Runnable task) {
    work.execute(task);
  }

  /** Ends the threads. Waits for them until this instant. */
  void close(long end) throws InterruptedException {
    for (ExecutorService threads : new ExecutorService[] {timer, calls, work}) {
      threads.shutdownNow();
    }
    for (ExecutorService threads : new ExecutorService[] {timer, calls, work}) {
      threads.awaitTermination(end - System.nanoTime(), NANOSECONDS);
    }
  }
}
