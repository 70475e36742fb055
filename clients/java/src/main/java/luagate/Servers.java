package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import redis.clients.jedis.Connection;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.providers.SentineledConnectionProvider;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.Pool;

/**
 * The servers of a client of Jedis: one, the master that sentinels name, or the masters of a
 * cluster.
 */
final class Servers {
  private final Luagate gate;
  private final ClusterConnectionProvider cluster; // null: no cluster
  private final Function<String, Pool<Connection>> pools; // by key; null: no server is known for it
  private final Map<Pool<Connection>, Node> nodes = new ConcurrentHashMap<>();
  private final CallQueue unknown; // for calls whose server is not known
  private final AtomicBoolean isRenewing = new AtomicBoolean();

  Servers(Luagate gate, UnifiedJedis redis) {
    this.gate = gate;
    unknown = new CallQueue(gate);
    Object provider = redis == null ? null : field(UnifiedJedis.class, "provider", redis);
    cluster = provider instanceof ClusterConnectionProvider found ? found : null;
    if (provider instanceof PooledConnectionProvider pooled) {
      pools = key -> pooled.getPool();
    } else if (provider instanceof SentineledConnectionProvider sentinels) {
      pools = key -> poolOf(sentinels);
    } else if (cluster != null) {
      pools = this::poolOfSlot;
    } else {
      throw new InvalidException(
          ("client: got %s. Accepted: RedisClient, RedisClusterClient, RedisSentinelClient,"
                  + " JedisPooled, JedisCluster, JedisSentineled,"
                  + " or another UnifiedJedis with one of their connection providers")
              .formatted(redis == null ? null : redis.getClass().getName()));
    }
  }

  /** Old versions of Jedis have no method that returns the pool of the present master. */
  @SuppressWarnings("unchecked")
  private static Pool<Connection> poolOf(SentineledConnectionProvider sentinels) {
    return (Pool<Connection>) field(SentineledConnectionProvider.class, "pool", sentinels);
  }

  /** Jedis has no method that returns what makes its connections. */
  private static Object field(Class<?> type, String name, Object of) {
    try {
      var field = type.getDeclaredField(name);
      field.setAccessible(true);
      return field.get(of);
    } catch (ReflectiveOperationException missing) {
      String text = "client: this version of Jedis has no %s. Accepted: Jedis 5.0 to 8";
      throw new InvalidException(text.formatted(name));
    }
  }

  private Pool<Connection> poolOfSlot(String key) {
    var node = cluster.getNode(JedisClusterCRC16.getSlot(key));
    return node == null ? null : cluster.getNodes().get(node.toString());
  }

  boolean isCluster() {
    return cluster != null;
  }

  /** The server of a key. */
  Node node(String key) throws Unanswered {
    Pool<Connection> pool = pools.apply(key);
    if (pool == null) {
      renew();
      throw new Unanswered("no node of the cluster has the slot of " + key, null, false);
    }
    return node(pool);
  }

  /** The server at this address of a cluster, as {@code host:port}. */
  Node nodeAt(String address) throws Unanswered {
    Pool<Connection> pool = cluster == null ? null : cluster.getNodes().get(address);
    if (pool == null) {
      renew();
      throw new Unanswered("the cluster has moved the slot to " + address, null, false);
    }
    return node(pool);
  }

  private Node node(Pool<Connection> pool) {
    Node known = nodes.get(pool);
    if (known != null) {
      return known;
    }
    nodes.values().stream().filter(Node::isGone).forEach(this::remove);
    return nodes.computeIfAbsent(pool, added -> new Node(gate, added));
  }

  private void remove(Node gone) {
    nodes.values().remove(gone);
    gone.close();
  }

  /** Makes a renewal or a release in the background, on a thread for the server of this key. */
  void run(String key, Runnable call) {
    try {
      node(key).queue.add(call);
    } catch (Unanswered noServer) {
      unknown.add(call);
    }
  }

  /** As {@link #run}, later. */
  Future<?> runAfter(long pauseNs, String key, Runnable call) {
    return gate.background().after(pauseNs, () -> run(key, call));
  }

  /** Asks the cluster in the background which node has which slot. */
  void renew() {
    if (cluster != null && isRenewing.compareAndSet(false, true)) {
      gate.background().run(this::renewNow);
    }
  }

  private void renewNow() {
    try {
      cluster.renewSlotCache();
    } catch (JedisException unreachable) {
      // The next call that fails asks again.
    } finally {
      isRenewing.set(false);
    }
  }

  /** See {@link Node#readPosted}. */
  void readPosted(long unreadNs) {
    nodes.values().forEach(node -> node.readPosted(unreadNs));
  }

  void endWaits() {
    nodes.values().forEach(Node::endWaits);
  }

  /** Closes all connections. Waits for the threads that read messages until this instant. */
  void close(long end) throws InterruptedException {
    nodes.values().forEach(Node::close);
    for (Node node : nodes.values()) {
      Thread reader = node.subscription.thread();
      if (reader != null) {
        NANOSECONDS.timedJoin(reader, Math.max(1, end - System.nanoTime()));
      }
    }
  }
}
