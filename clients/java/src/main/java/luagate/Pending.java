package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** Counts the waits and the releases in progress, which {@code close} waits for. */
final class Pending {
  private final ReentrantLock lock = new ReentrantLock(); // a monitor would pin a virtual thread
  private final Condition none = lock.newCondition();
  private int count;

  void begin() {
    add(1);
  }

  void end() {
    add(-1);
  }

  private void add(int change) {
    lock.lock();
    try {
      count += change;
      if (count == 0) {
        none.signalAll();
      }
    } finally {
      lock.unlock();
    }
  }

  /** Waits until none is in progress, but only until this instant. */
  void awaitNone(long end) throws InterruptedException {
    lock.lock();
    try {
      while (count > 0 && end - System.nanoTime() > 0) {
        none.await(end - System.nanoTime(), NANOSECONDS);
      }
    } finally {
      lock.unlock();
    }
  }
}
