package luagate;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import luagate.Scripts.Reply;
import luagate.Several.Want;
import redis.clients.jedis.RedisClient;

/**
 * Semaphores and mutexes on one server. Threads may share all objects. From the first wait on, it
 * keeps one connection of the pool for messages. Its background threads are daemons.
 */
public final class Luagate implements AutoCloseable {
  private static final int RENEWING_THREADS = 4; // the most

  final Scripts scripts;
  private final String prefix;
  private final ScheduledThreadPoolExecutor timer =
      new ScheduledThreadPoolExecutor(1, daemons("luagate-timer"), ignore());
  private final ExecutorService renewals =
      Executors.newFixedThreadPool(RENEWING_THREADS, daemons("luagate-renewal"));
  private Inbox inbox;

  /** Sends nothing. All keys begin with {@code luagate}. */
  public Luagate(RedisClient redis) {
    this(redis, "luagate");
  }

  /** All keys begin with the prefix: 1 to 64 letters, digits, '.', '_', '-' and ':'. */
  public Luagate(RedisClient redis, String prefix) {
    this(new Scripts(redis), prefix);
  }

  /** Reads the scripts from another folder {@code lua/}. */
  public Luagate(RedisClient redis, String prefix, Path scripts) {
    this(new Scripts(redis, scripts), prefix);
  }

  private Luagate(Scripts scripts, String prefix) {
    Settings.checkPrefix(prefix);
    this.scripts = scripts;
    this.prefix = prefix;
    timer.setRemoveOnCancelPolicy(true);
  }

  /** A semaphore: at most {@code limit} permits are held at a time. */
  public Semaphore semaphore(String name, int limit) {
    return new Semaphore(Settings.of(this, prefix, "semaphore", name, limit));
  }

  /** A lock: a semaphore with one permit. */
  public Semaphore mutex(String name) {
    return new Semaphore(Settings.of(this, prefix, "mutex", name, 1));
  }

  /** Permits of several semaphores together, all or none. */
  public Several several(Want... wants) {
    return new Several(this, List.of(wants));
  }

  /**
   * Ends the subscription and the renewal. Permits stay held until they are released or their leases
   * end. The pool stays open.
   */
  @Override
  public synchronized void close() {
    timer.shutdownNow();
    renewals.shutdownNow();
    if (inbox != null) {
      inbox.close();
    }
  }

  synchronized Inbox inbox() {
    if (inbox == null) {
      inbox = new Inbox(scripts, prefix);
    }
    return inbox;
  }

  ScheduledExecutorService timer() {
    return timer;
  }

  ExecutorService renewals() {
    return renewals;
  }

  /** Calls a script of a semaphore with arguments by name. */
  Reply call(Settings settings, String name, Map<String, ?> arguments) {
    return scripts.call("semaphore/" + name, settings.keys(), arguments);
  }

  private static ThreadFactory daemons(String name) {
    return work -> {
      Thread thread = new Thread(work, name);
      thread.setDaemon(true);
      return thread;
    };
  }

  /** After {@code close}, nothing is renewed. */
  private static ThreadPoolExecutor.DiscardPolicy ignore() {
    return new ThreadPoolExecutor.DiscardPolicy();
  }
}
