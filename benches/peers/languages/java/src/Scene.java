import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.StringJoiner;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Runs a scene with threads: workers acquire, hold and release until the time is over.
 *
 * @param once each worker takes one turn, then waits for all others; otherwise it asks again at once
 */
record Scene(String url, int workers, int permits, long holdMicros, double seconds, boolean once) {
  /** A lock, or a semaphore. */
  interface Gate {
    /** Acquires, and returns the action that releases. */
    Runnable enter() throws InterruptedException;
  }

  /** The arguments of the program; the README of the folder `peers` describes them. */
  static Scene of(String[] arguments) {
    return new Scene(
        arguments[0],
        Integer.parseInt(arguments[1]),
        Integer.parseInt(arguments[2]),
        Long.parseLong(arguments[3]),
        Double.parseDouble(arguments[4]),
        arguments[5].equals("once"));
  }

  /** Runs the scene. Each turn uses one of the gates, chosen at random. */
  void play(List<Gate> gates) throws IOException, InterruptedException {
    System.out.println("ready");
    System.in.read();
    long start = System.nanoTime();
    List<String> stays = Collections.synchronizedList(new ArrayList<>());
    while (goesOn(start)) {
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < workers; i++) {
        threads.add(new Thread(() -> work(start, gates, stays)));
      }
      threads.forEach(Thread::start);
      for (Thread thread : threads) {
        thread.join();
      }
    }
    StringJoiner joined = new StringJoiner(",", "{\"stays\":[", "]}");
    stays.forEach(joined::add);
    System.out.println(joined);
  }

  private void work(long start, List<Gate> gates, List<String> stays) {
    try {
      do {
        long asked = micros(start);
        int gate = ThreadLocalRandom.current().nextInt(gates.size());
        Runnable leave = gates.get(gate).enter();
        long entered = micros(start);
        if (holdMicros > 0) {
          Thread.sleep(holdMicros / 1000, (int) (holdMicros % 1000) * 1000);
        }
        stays.add("[" + gate + "," + asked + "," + entered + "," + micros(start) + "]");
        leave.run();
      } while (goesOn(start) && !once);
    } catch (Throwable error) {
      // Without a failed worker the others would be faster, and the figures wrong.
      error.printStackTrace();
      System.exit(1);
    }
  }

  private boolean goesOn(long start) {
    return micros(start) < seconds * 1e6;
  }

  private static long micros(long start) {
    return (System.nanoTime() - start) / 1000;
  }
}
