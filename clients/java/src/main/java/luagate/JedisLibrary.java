package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.util.List;
import java.util.function.Function;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.providers.SentineledConnectionProvider;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.Pool;

/**
 * Jedis. Connections are made as its pools make them, but are not taken from the pools: to borrow
 * from a pool can block for longer than a call may last.
 */
final class JedisLibrary implements Library {
  private final ClusterConnectionProvider cluster; // null: no cluster
  private final Function<String, Server> servers; // by key; null: no server is known for it

  private JedisLibrary(Object client) {
    Object provider = Library.field(UnifiedJedis.class, "provider", client);
    cluster = provider instanceof ClusterConnectionProvider found ? found : null;
    if (provider instanceof PooledConnectionProvider pooled) {
      servers = key -> new JedisServer(pooled.getPool());
    } else if (provider instanceof SentineledConnectionProvider sentinels) {
      servers = key -> new JedisServer(poolOf(sentinels));
    } else if (cluster != null) {
      servers = this::serverOfSlot;
    } else {
      throw Library.refused(client);
    }
  }

  static Library of(Object client) {
    return new JedisLibrary(client);
  }

  /** Old versions have no method that returns the pool of the present master. */
  @SuppressWarnings("unchecked")
  private static Pool<redis.clients.jedis.Connection> poolOf(
      SentineledConnectionProvider sentinels) {
    Object pool = Library.field(SentineledConnectionProvider.class, "pool", sentinels);
    return (Pool<redis.clients.jedis.Connection>) pool;
  }

  private Server serverOfSlot(String key) {
    var node = cluster.getNode(JedisClusterCRC16.getSlot(key));
    return node == null ? null : serverAt(node.toString());
  }

  @Override
  public boolean isCluster() {
    return cluster != null;
  }

  @Override
  public Server serverOf(String key) {
    return servers.apply(key);
  }

  @Override
  public Server serverAt(String address) {
    var pool = cluster.getNodes().get(address);
    return pool == null ? null : new JedisServer(pool);
  }

  @Override
  public void renew() {
    cluster.renewSlotCache();
  }

  private static Unanswered lost(JedisException failed) {
    return new Unanswered(failed.getMessage(), failed, false);
  }

  private static void close(redis.clients.jedis.Connection connection) {
    try {
      connection.disconnect();
    } catch (JedisException alreadyBroken) {
      // It is closed all the same.
    }
  }

  private record JedisServer(Pool<redis.clients.jedis.Connection> pool) implements Server {
    private redis.clients.jedis.Connection opened() throws Exception {
      try {
        return pool.getFactory().makeObject().getObject();
      } catch (JedisDataException refused) {
        throw new ErrorReply(refused);
      }
    }

    @Override
    public Connection connect() throws Exception {
      return new JedisConnection(opened());
    }

    @Override
    public Messages open(String channel, Listener listener) throws Exception {
      return new JedisMessages(opened(), channel, listener);
    }

    @Override
    public int mostConnections() {
      return pool.getMaxTotal() < 0 ? Integer.MAX_VALUE : Math.max(1, pool.getMaxTotal());
    }

    @Override
    public boolean isClosed() {
      return pool.isClosed();
    }
  }

  private record JedisConnection(redis.clients.jedis.Connection connection) implements Connection {
    @Override
    public void begin(long end, boolean isInterruptible) {
      long leftMs = NANOSECONDS.toMillis(end - System.nanoTime());
      try {
        connection.setSoTimeout((int) Math.max(1, Math.min(leftMs, Integer.MAX_VALUE)));
      } catch (JedisException broken) {
        // The call finds it.
      }
    }

    @Override
    public void send(String command, List<byte[]> words) throws Unanswered {
      var arguments = new CommandArguments(Command.valueOf(command));
      for (byte[] word : words) {
        arguments.add((Object) word); // old versions have only this method
      }
      try {
        connection.sendCommand(arguments);
      } catch (JedisException broken) {
        throw lost(broken);
      }
    }

    @Override
    public void flush() throws Unanswered {
      try {
        connection.getMany(0); // no other public method only sends what is in the buffer
      } catch (JedisException broken) {
        throw lost(broken);
      }
    }

    @Override
    public Object receive() throws Unanswered {
      try {
        return connection.getOne();
      } catch (JedisDataException refused) {
        throw new ErrorReply(refused);
      } catch (JedisException broken) {
        throw lost(broken);
      }
    }

    @Override
    public void close() {
      JedisLibrary.close(connection);
    }
  }

  private static final class JedisMessages extends JedisPubSub implements Messages {
    private final redis.clients.jedis.Connection connection;
    private final String channel;
    private final Listener listener;

    JedisMessages(redis.clients.jedis.Connection connection, String channel, Listener listener) {
      this.connection = connection;
      this.channel = channel;
      this.listener = listener;
    }

    @Override
    public void read() {
      try {
        proceed(connection, channel);
      } catch (JedisDataException refused) {
        throw new ErrorReply(refused);
      }
    }

    @Override
    public void confirm() throws Unanswered {
      try {
        subscribe(channel); // not `ping`: Jedis can read a PONG before it expects one
      } catch (JedisException broken) {
        throw lost(broken);
      }
    }

    @Override
    public void onSubscribe(String subscribed, int count) {
      listener.confirmed();
    }

    @Override
    public void onMessage(String from, String text) {
      listener.received(text);
    }

    @Override
    public void close() {
      JedisLibrary.close(connection);
    }
  }
}
