import static java.nio.charset.StandardCharsets.UTF_8;

import io.lettuce.core.RedisClient;
import java.net.Socket;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingStream;
import luagate.ClosedException;
import luagate.Luagate;
import luagate.Semaphore;

/**
 * A thousand virtual threads use five permits, and none is pinned. Then one of them closes the gate,
 * which takes a while, and another one looks whether it is held up.
 */
public final class Program {
  private static final int THREADS = 1_000;
  private static final int LIMIT = 5;

  /** A pinned thread cannot leave its carrier thread while it waits. */
  private static final Duration LONGEST_PIN = Duration.ofMillis(20);

  private static final Queue<Throwable> FAILURES = new ConcurrentLinkedQueue<>();
  private static final Queue<RecordedEvent> PINS = new ConcurrentLinkedQueue<>();

  public static void main(String[] args) throws Exception {
    String url = System.getenv("REDIS_URL");
    try (AutoCloseable client =
            args[0].equals("lettuce")
                ? RedisClient.create(url)
                : redis.clients.jedis.RedisClient.create(url);
        var recording = new RecordingStream()) {
      recording.enable("jdk.VirtualThreadPinned").withThreshold(LONGEST_PIN).withStackTrace();
      recording.onEvent("jdk.VirtualThreadPinned", PINS::add);
      recording.startAsync();
      var gate = new Luagate(client, "virtual-" + args[0]);
      use(gate);
      var ended = new AtomicBoolean();
      var longestNs = new AtomicLong();
      Thread sleeper = Thread.ofVirtual().start(() -> sleep(ended, longestNs));
      closeInSilence(gate, URI.create(url));
      ended.set(true);
      sleeper.join();
      long longestPauseMs = longestNs.get() / 1_000_000;
      recording.stop();
      check(FAILURES.isEmpty(), "a call failed: " + FAILURES.peek());
      check(longestPauseMs < 400, "a thread was held up for " + longestPauseMs + " ms");
      check(PINS.isEmpty(), PINS.size() + " times a thread was pinned, once here: " + PINS.peek());
    }
  }

  private static void use(Luagate gate) throws InterruptedException {
    var semaphore = gate.semaphore("desks", LIMIT).lease(Duration.ofSeconds(5)).autoRenew();
    var held = new AtomicInteger();
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < THREADS; i++) {
      threads.add(Thread.ofVirtual().unstarted(() -> use(semaphore, held)));
    }
    threads.forEach(Thread::start);
    for (Thread thread : threads) {
      thread.join();
    }
  }

  /** Closes the gate while a thread waits in line, and the server does not answer. */
  private static void closeInSilence(Luagate gate, URI server) throws Exception {
    var mutex = gate.mutex("silence");
    mutex.acquire(Duration.ofSeconds(60));
    Thread waiter = Thread.ofVirtual().start(() -> waitUntilClosed(mutex));
    while (mutex.inspect().waiterCount() == 0) {
      Thread.sleep(1);
    }
    try (var socket = new Socket(server.getHost(), server.getPort())) {
      socket.getOutputStream().write("CLIENT PAUSE 3000 ALL\r\n".getBytes(UTF_8));
      check(socket.getInputStream().read() == '+', "the server does not pause");
      Thread.ofVirtual().start(gate::close).join();
    }
    waiter.join();
  }

  private static void waitUntilClosed(Semaphore mutex) {
    try {
      mutex.acquire(Duration.ofSeconds(60)).release();
      FAILURES.add(new AssertionError("granted"));
    } catch (ClosedException expected) {
      // The promise of `close`.
    } catch (InterruptedException | RuntimeException failed) {
      FAILURES.add(failed);
    }
  }

  /** Notes for how long at most it was held up. */
  private static void sleep(AtomicBoolean ended, AtomicLong longestNs) {
    try {
      while (!ended.get()) {
        long before = System.nanoTime();
        Thread.sleep(5);
        longestNs.accumulateAndGet(System.nanoTime() - before, Math::max);
      }
    } catch (InterruptedException interrupt) {
      FAILURES.add(interrupt);
    }
  }

  private static void use(Semaphore semaphore, AtomicInteger held) {
    try (var permit = semaphore.acquire(Duration.ofSeconds(60))) {
      check(held.incrementAndGet() <= LIMIT, "more permits than the limit");
      Thread.sleep(2);
      held.decrementAndGet();
    } catch (Exception | AssertionError failed) {
      FAILURES.add(failed);
    }
  }

  private static void check(boolean isTrue, String text) {
    if (!isTrue) {
      throw new AssertionError(text);
    }
  }
}
