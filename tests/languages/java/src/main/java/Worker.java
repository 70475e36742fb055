import java.io.IOException;
import java.io.OutputStream;
import java.time.Duration;
import java.util.Random;
import luagate.DeniedException;
import luagate.Luagate;
import luagate.Permit;
import luagate.Semaphore;
import luagate.Ticket;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;

/**
 * Acquires and releases permits of the semaphore {@code together}, until its standard input ends:
 * {@code URL PREFIX SEED}.
 */
public final class Worker {
  private final RedisClient redis;
  private final Semaphore together;
  private final String log;
  private final Random random;

  public static void main(String[] args) throws Exception {
    Thread input = new Thread(Worker::readInput);
    input.setDaemon(true);
    input.start();
    try (var redis = RedisClient.create(args[0]);
        var gate = new Luagate(redis, args[1])) {
      var worker = new Worker(redis, gate, args[1], Long.parseLong(args[2]));
      while (input.isAlive()) {
        worker.round();
      }
    }
    System.out.println("finished");
  }

  private static void readInput() {
    try {
      System.in.transferTo(OutputStream.nullOutputStream());
    } catch (IOException ended) {
      // An error counts as the end of the input.
    }
  }

  private Worker(RedisClient redis, Luagate gate, String prefix, long seed) {
    this.redis = redis;
    together = gate.semaphore("together", 3).lease(Duration.ofSeconds(2));
    log = prefix + ":log";
    random = new Random(seed);
  }

  private void round() throws InterruptedException {
    int permits = 1 + random.nextInt(2);
    boolean waits = random.nextInt(4) > 0;
    int headStartMs = random.nextInt(4) == 0 ? 50 : 0;
    Semaphore now = together.headStart(Duration.ofMillis(headStartMs));
    try {
      Permit permit =
          waits
              ? now.acquire(permits, Duration.ofSeconds(20))
              : now.tryAcquire(permits);
      stay(permit, headStartMs);
      System.out.println("served");
    } catch (DeniedException denied) {
      Thread.sleep(1 + random.nextInt(20));
    } catch (Exception failed) {
      System.out.println("error " + failed.toString().replaceAll("\\s+", " "));
      Thread.sleep(50);
    }
  }

  private void stay(Permit permit, int headStartMs) throws InterruptedException {
    try (permit) {
      try {
        log(
            "event", "enter",
            "language", "java",
            "id", permit.id(),
            "permits", "" + permit.permits(),
            "fence", "" + permit.fence(),
            "ticket", permit.ticket().map(given -> "" + Ticket.parse("" + given)).orElse("0"),
            "head_start", "" + headStartMs,
            "expires_at", "" + permit.expiresAt());
        Thread.sleep(random.nextInt(21));
        if (random.nextInt(3) == 0) {
          permit.refresh();
        }
      } finally {
        log("event", "leave", "id", permit.id());
      }
    }
  }

  /** Adds an entry. Retries if that fails: a second entry does no harm. */
  private void log(String... fields) throws InterruptedException {
    var entry = new CommandArguments(Command.XADD).key(log).add("*").addObjects((Object[]) fields);
    while (true) {
      try {
        redis.executeCommand(entry);
        return;
      } catch (JedisConnectionException lost) {
        Thread.sleep(10);
      }
    }
  }
}
