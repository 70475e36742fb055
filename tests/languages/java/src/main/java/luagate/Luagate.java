package luagate;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import luagate.Several.Want;
import redis.clients.jedis.RedisClient;

/**
 * Semaphores and mutexes on one server. From the first wait on, it keeps one connection of the pool
 * for messages. {@link Several#tryAcquire} needs names that share a group, such as {@code
 * {market}:user:7} and {@code {market}:total}.
 */
public final class Luagate implements AutoCloseable {
  final Scripts scripts;
  final String prefix;
  private Inbox inbox;

  /** Reads the scripts from the folder {@code lua/}. */
  public Luagate(RedisClient redis, Path lua) throws IOException {
    this(redis, lua, "luagate");
  }

  /** Reads the scripts from the folder {@code lua/}. All keys begin with the prefix. */
  public Luagate(RedisClient redis, Path lua, String prefix) throws IOException {
    this.scripts = new Scripts(redis, lua);
    this.prefix = prefix;
  }

  /** A semaphore with a lease of 30 s. */
  public Semaphore semaphore(String name, int limit) {
    return semaphore(name, limit, Duration.ofSeconds(30));
  }

  /** A semaphore: at most {@code limit} permits are held at a time. */
  public Semaphore semaphore(String name, int limit, Duration lease) {
    return new Semaphore(this, "semaphore", name, limit, lease);
  }

  /** A mutex with a lease of 30 s. */
  public Semaphore mutex(String name) {
    return mutex(name, Duration.ofSeconds(30));
  }

  /** A mutex: a semaphore with a limit of 1. */
  public Semaphore mutex(String name, Duration lease) {
    return new Semaphore(this, "mutex", name, 1, lease);
  }

  /** Permits of several semaphores together, all or none. */
  public Several several(Want... wants) {
    return new Several(this, List.of(wants));
  }

  synchronized Inbox inbox() {
    if (inbox == null) {
      inbox = new Inbox(scripts, prefix);
    }
    return inbox;
  }

  /** Ends the subscription. Permits stay held, and the pool stays open. */
  @Override
  public synchronized void close() {
    if (inbox != null) {
      inbox.close();
    }
  }
}
