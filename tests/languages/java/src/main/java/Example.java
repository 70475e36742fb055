import java.nio.file.Path;
import java.time.Duration;
import luagate.Luagate;
import redis.clients.jedis.RedisClient;

public final class Example {
  public static void main(String[] args) throws Exception {
    String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379/");
    try (var redis = RedisClient.create(url);
        var gate = new Luagate(redis, Path.of("lua"))) {
      var market = gate.semaphore("market", 5);
      try (var permit = market.acquire(Duration.ofSeconds(10))) {
        System.out.println("one of five in the market, with fence " + permit.fence());
      }
    }
  }
}
