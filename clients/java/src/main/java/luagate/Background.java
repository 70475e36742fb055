package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor.DiscardPolicy;

/** The background threads of a gate. They are daemons, so they never keep the program alive. */
final class Background {
  private final ScheduledThreadPoolExecutor timer =
      new ScheduledThreadPoolExecutor(1, daemons("luagate-timer"), new DiscardPolicy());

  /** For all that can block: calls, new connections, notices of losses. */
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

  /** Runs something that may block. */
  void run(Runnable task) {
    work.execute(task);
  }

  /** Whether its threads end. */
  boolean isClosed() {
    return work.isShutdown();
  }

  /** Ends the threads. Waits for them until this instant. */
  void close(long end) throws InterruptedException {
    for (ExecutorService threads : new ExecutorService[] {timer, work}) {
      threads.shutdownNow();
    }
    for (ExecutorService threads : new ExecutorService[] {timer, work}) {
      threads.awaitTermination(end - System.nanoTime(), NANOSECONDS);
    }
  }
}
