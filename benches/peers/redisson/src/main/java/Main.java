import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Locks and semaphores of Redisson, with its defaults; the last argument selects one. */
class Main {
  public static void main(String[] arguments) throws Exception {
    Scene scene = Scene.of(arguments);
    Config config = new Config();
    config.useSingleServer().setAddress(scene.url().replaceAll("/$", ""));
    RedissonClient redisson = Redisson.create(config);
    scene.play(
        switch (arguments[6]) {
          case "RSemaphore" -> List.of(semaphore(redisson, scene));
          case "RPermitExpirableSemaphore" -> List.of(expirable(redisson, scene));
          case "RLock" -> numbers(scene).mapToObj(i -> lock(redisson.getLock("lock-" + i))).toList();
          case "RFairLock" -> numbers(scene).mapToObj(i -> lock(redisson.getFairLock("lock-" + i))).toList();
          default -> throw new IllegalArgumentException(arguments[6]);
        });
    System.exit(0); // Redisson takes seconds to shut down
  }

  private static IntStream numbers(Scene scene) {
    return IntStream.range(0, scene.permits());
  }

  private static Scene.Gate semaphore(RedissonClient redisson, Scene scene) {
    RSemaphore semaphore = redisson.getSemaphore("scene");
    semaphore.trySetPermits(scene.permits());
    return () -> {
      semaphore.acquire();
      return semaphore::release;
    };
  }

  private static Scene.Gate expirable(RedissonClient redisson, Scene scene) {
    RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore("scene");
    semaphore.trySetPermits(scene.permits());
    return () -> {
      String id = semaphore.acquire(30, TimeUnit.SECONDS);
      return () -> semaphore.release(id);
    };
  }

  private static Scene.Gate lock(RLock lock) {
    return () -> {
      lock.lock();
      return lock::unlock;
    };
  }
}
