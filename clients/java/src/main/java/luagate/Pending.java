package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

/** Counts the waits and the releases in progress, which {@code close} waits for. */
final class Pending {
  private int count;

  synchronized void begin() {
    count++;
  }

  synchronized void end() {
    count--;
    if (count == 0) {
      notifyAll();
    }
  }

  /** Waits until none is in progress, but only until this instant. */
  synchronized void awaitNone(long end) throws InterruptedException {
    while (count > 0 && end - System.nanoTime() > 0) {
      NANOSECONDS.timedWait(this, end - System.nanoTime());
    }
  }
}
