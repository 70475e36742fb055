import java.util.List;
import luagate.Luagate;
import redis.clients.jedis.RedisClient;

/** A semaphore of luagate, with the package in clients/java and Jedis. */
class Main {
  public static void main(String[] arguments) throws Exception {
    Scene scene = Scene.of(arguments);
    try (var redis = RedisClient.create(scene.url());
        var gate = new Luagate(redis)) {
      var semaphore = gate.semaphore("scene", scene.permits());
      scene.play(
          List.of(
              () -> {
                var permit = semaphore.acquire();
                return permit::close;
              }));
    }
  }
}
