package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.lang.System.Logger.Level;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Semaphores and locks on one server or cluster. Threads may share all objects. It opens
 * connections of its own with the settings of the client of Jedis or Lettuce: for a server one for
 * each call in progress, at most as many as the pool of the client may have (8 with Lettuce), and
 * one for messages from the first wait on. Its background threads are daemons.
 */
public final class Luagate implements AutoCloseable {
  private static final System.Logger LOGGER = System.getLogger("luagate");

  private static final long LONGEST_RELEASES_NS = MILLISECONDS.toNanos(800);
  private static final long LONGEST_CLOSE_NS = MILLISECONDS.toNanos(1_000);

  private final String prefix;
  private final String label;
  private final long callTimeoutNs;
  private final CountDownLatch closed = new CountDownLatch(1);
  private final ReentrantLock closing = new ReentrantLock();
  private final Background background = new Background();
  private final Leases leases = new Leases(background);
  private final Watch watch = new Watch();
  private final Pending pending = new Pending();
  private final PostedReleases posted = new PostedReleases(this);
  private final Counts counts = new Counts();
  private final Inbox inbox;
  private final Servers servers;
  private final Calls calls;

  /** The settings of a {@link Luagate}. An invalid one throws {@link InvalidException}. */
  public static final class Builder {
    private final Object client;
    private String prefix = "luagate";
    private String label;
    private Duration callTimeout = Duration.ofSeconds(4);
    private Path scripts;

    private Builder(Object client) {
      this.client = client;
    }

    /** All keys begin with it: 1 to 64 letters, digits, '.', '_', '-' and ':'. */
    public Builder prefix(String prefix) {
      Settings.checkPrefix(prefix);
      this.prefix = prefix;
      return this;
    }

    /** At the start of each id, {@code <label>/<uuid>}: 1 to 163 bytes without white space. */
    public Builder label(String label) {
      Settings.checkLabel(label);
      this.label = label;
      return this;
    }

    /** For calls with no deadline of their own: 1 ms to one day. 4 s without this. */
    public Builder callTimeout(Duration timeout) {
      Settings.millis("callTimeout", timeout, 1, Settings.LONGEST_HEAD_START_MS);
      callTimeout = timeout;
      return this;
    }

    /** Reads the scripts from another folder {@code lua/}. */
    public Builder scripts(Path folder) {
      Settings.check(folder != null, "scripts", null, "a folder");
      scripts = folder;
      return this;
    }

    /** Sends nothing. */
    public Luagate build() {
      return new Luagate(this);
    }
  }

  /** Sends nothing. All keys begin with {@code luagate}. For the client see {@link #builder}. */
  public Luagate(Object client) {
    this(builder(client));
  }

  /** Sends nothing. All keys begin with the prefix. See {@link Builder#prefix}. */
  public Luagate(Object client, String prefix) {
    this(builder(client).prefix(prefix));
  }

  private Luagate(Builder settings) {
    prefix = settings.prefix;
    label = settings.label;
    callTimeoutNs = settings.callTimeout.toNanos();
    inbox = new Inbox(prefix);
    servers = new Servers(this, settings.client);
    Scripts scripts = settings.scripts == null ? new Scripts() : new Scripts(settings.scripts);
    calls = new Calls(this, scripts, servers);
    watch.start();
  }

  /**
   * More settings. Accepted clients: of Jedis RedisClient, RedisClusterClient and
   * RedisSentinelClient, in old versions JedisPooled, JedisCluster and JedisSentineled; of Lettuce
   * RedisClient and RedisClusterClient.
   */
  public static Builder builder(Object client) {
    return new Builder(client);
  }

  /**
   * Makes a valid name of any text: a URL, a path, a text of any length. A valid name is returned
   * unchanged. The same text has the same name in Rust, by {@code name_from}.
   */
  public static String nameFrom(String text) {
    return Name.from(text);
  }

  /** A semaphore: at most {@code limit} permits are held at a time, 1 to 2147483647. */
  public Semaphore semaphore(String name, int limit) {
    checkOpen();
    return new Semaphore(new Settings(this, "semaphore", name, limit, false));
  }

  /** A lock: a semaphore with one permit. */
  public Semaphore mutex(String name) {
    checkOpen();
    return new Semaphore(new Settings(this, "mutex", name, 1, false));
  }

  /** A lock for readers and writers. */
  public RwLock rwlock(String name) {
    checkOpen();
    return new RwLock(this, name);
  }

  /** Permits of several semaphores together, all or none. */
  public Several several(Several.Want... wants) {
    checkOpen();
    return new Several(this, wants);
  }

  /** What this gate has counted since it was made. Sends nothing. */
  public Counters counters() {
    return counts.read();
  }

  /** Runs a script as it is, with keys and arguments of any bytes. For tests and tools. */
  public Object run(String script, List<byte[]> keys, List<byte[]> argv) {
    return calls.run(script, keys, argv);
  }

  /** The scripts that it runs. For tests and tools. */
  public Scripts scripts() {
    return calls.scripts;
  }

  /**
   * Ends all waits and all later calls with {@link ClosedException}, gives up their places in line
   * if the server answers, and ends the background threads. Blocks for a second at most. Permits
   * stay held until their leases end. The client stays open.
   */
  @Override
  public void close() {
    closing.lock(); // a monitor would pin a virtual thread that waits
    try {
      if (!isClosed()) {
        end();
      }
    } finally {
      closing.unlock();
    }
  }

  private void end() {
    long began = System.nanoTime();
    closed.countDown();
    inbox.fail(new ClosedException());
    servers.endWaits();
    watch.endWaits();
    servers.readPosted(0);
    boolean isInterrupted = Thread.interrupted();
    try {
      pending.awaitNone(began + LONGEST_RELEASES_NS);
    } catch (InterruptedException interrupt) {
      isInterrupted = true;
    }
    Thread watching = watch.close();
    try {
      servers.close(began + LONGEST_CLOSE_NS);
      background.close(began + LONGEST_CLOSE_NS);
      NANOSECONDS.timedJoin(watching, Math.max(1, began + LONGEST_CLOSE_NS - System.nanoTime()));
    } catch (InterruptedException interrupt) {
      isInterrupted = true;
    }
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  boolean isClosed() {
    return closed.getCount() == 0;
  }

  void checkOpen() {
    if (isClosed()) {
      throw new ClosedException();
    }
  }

  /** Waits. Throws ClosedException as soon as the gate is closed. */
  void pause(long ns) throws InterruptedException {
    if (closed.await(ns, NANOSECONDS)) {
      throw new ClosedException();
    }
  }

  String prefix() {
    return prefix;
  }

  String label() {
    return label;
  }

  long callTimeoutNs() {
    return callTimeoutNs;
  }

  /** Logs in a thread of its own: a handler of the program may block, or may use its permits. */
  void warn(String text, Throwable failed) {
    Runnable log = () -> LOGGER.log(Level.WARNING, text, failed);
    if (background.isClosed()) {
      log.run();
    } else {
      background.run(log);
    }
  }

  Background background() {
    return background;
  }

  Leases leases() {
    return leases;
  }

  Watch watch() {
    return watch;
  }

  Pending pending() {
    return pending;
  }

  PostedReleases posted() {
    return posted;
  }

  Counts counts() {
    return counts;
  }

  Inbox inbox() {
    return inbox;
  }

  Servers servers() {
    return servers;
  }

  Calls calls() {
    return calls;
  }
}
