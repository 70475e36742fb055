import java.nio.file.Path;
import java.time.Duration;
import luagate.Luagate;
import redis.clients.jedis.RedisClient;

public final class Example {
  public static void main(String[] args) throws Exception {
    String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379/");
    try (var redis = RedisClient.create(url);
        var gate = new Luagate(redis, Path.of("lua"))) {
      // At most five processes of this account are in the market at a time.
      var market = gate.semaphore("market:account:17", 5, Duration.ofSeconds(10));
      try (var permit = market.acquire(Duration.ofSeconds(2))) { // in line, first come, first served
        System.out.println("trading as " + permit.id() + ", fence " + permit.fence());
      }
    }
  }
}
