package shop;

import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import luagate.Luagate;
import luagate.TimedOutException;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.stereotype.Component;

/** Forty orders are packed at five desks. */
@SpringBootApplication
public class Shop {
  private static final int ORDERS = 40;
  private static final int DESKS = 5;

  @Component
  static final class Orders implements CommandLineRunner {
    private final Luagate gate;
    private final StringRedisTemplate redis;
    private final AtomicInteger packing = new AtomicInteger();

    Orders(Luagate gate, StringRedisTemplate redis) {
      this.gate = gate;
      this.redis = redis;
    }

    @Override
    public void run(String... args) throws Exception {
      ExecutorService threads = Executors.newFixedThreadPool(ORDERS);
      Future<?>[] orders = new Future<?>[ORDERS];
      for (int i = 0; i < ORDERS; i++) {
        orders[i] = threads.submit(this::pack);
      }
      for (Future<?> order : orders) {
        order.get();
      }
      threads.shutdown();
      checkSettings();
    }

    private Void pack() throws Exception {
      try (var permit = gate.semaphore("desks", DESKS).acquire(Duration.ofSeconds(20))) {
        check(packing.incrementAndGet() <= DESKS, "more than " + DESKS + " at a time");
        Thread.sleep(20);
        packing.decrementAndGet();
      }
      return null;
    }

    /** The gate uses the database and the name that application.properties gives to Lettuce. */
    private void checkSettings() throws InterruptedException {
      var mutex = gate.mutex("stock");
      try (var held = mutex.acquire(Duration.ofSeconds(20))) {
        check(redis.hasKey("luagate:mutex:{stock}"), "the gate uses another database");
        try (var never = mutex.acquire(Duration.ofMillis(50))) {
          throw new AssertionError("two have the lock");
        } catch (TimedOutException expected) {
          check(expected.inUse() == 1, "nobody has the lock");
        }
      }
      String clients = redis.execute(connection -> "" + connection.serverCommands().getClientList(), true);
      check(clients.split("shop", -1).length > 3, "connections without the name: " + clients);
    }

    private static void check(boolean isTrue, String text) {
      if (!isTrue) {
        throw new AssertionError(text);
      }
    }
  }

  public static void main(String[] args) {
    SpringApplication.run(Shop.class, args).close();
    System.out.println("closed");
  }
}
