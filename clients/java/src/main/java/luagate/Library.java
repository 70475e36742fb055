package luagate;

import java.util.List;

/** A library for Redis, as a gate uses it: with the settings of the client of a program. */
interface Library {
  /** Names the servers of a client. The other library may be missing on the class path. */
  static Library of(Object client) {
    if (isA(client, "redis.clients.jedis.UnifiedJedis")) {
      return JedisLibrary.of(client);
    }
    if (isA(client, "io.lettuce.core.AbstractRedisClient")) {
      return LettuceLibrary.of(client);
    }
    throw refused(client);
  }

  private static boolean isA(Object client, String name) {
    Class<?> type = client == null ? null : client.getClass();
    while (type != null && !type.getName().equals(name)) {
      type = type.getSuperclass();
    }
    return type != null;
  }

  static InvalidException refused(Object client) {
    return new InvalidException(
        ("client: got %s. Accepted: of Jedis RedisClient, RedisClusterClient, RedisSentinelClient,"
                + " JedisPooled, JedisCluster, JedisSentineled, or another UnifiedJedis with one of"
                + " their connection providers; of Lettuce RedisClient made with a RedisURI, or"
                + " RedisClusterClient")
            .formatted(client == null ? null : client.getClass().getName()));
  }

  /** A private field, where the library has no method that returns it. */
  static Object field(Class<?> type, String name, Object of) {
    try {
      var field = type.getDeclaredField(name);
      field.setAccessible(true);
      return field.get(of);
    } catch (ReflectiveOperationException missing) {
      String text = "client: this version of the library has no %s.%s. Accepted: %s";
      String accepted = "Jedis 5.0 to 8, Lettuce 6.2 to 7.7";
      throw new InvalidException(text.formatted(type.getSimpleName(), name, accepted));
    }
  }

  boolean isCluster();

  /** The server of a key; null: not known. */
  Server serverOf(String key);

  /** The server at an address {@code host:port} of a cluster; null: not known. */
  Server serverAt(String address);

  /** Asks the cluster which node has which slot. Blocks. */
  void renew();

  /** One server. Equal objects stand for the same server. */
  interface Server {
    /** A new connection of the gate's own. Blocks, for a time that the library limits. */
    Connection connect() throws Exception;

    /** The same, for the messages of a channel. */
    Messages open(String channel, Listener listener) throws Exception;

    /** How many connections may be open for calls. */
    int mostConnections();

    /** Whether the program has closed its client, or the cluster has lost this server. */
    boolean isClosed();
  }

  /** A connection for calls. One thread at a time uses it; only {@link #close} is for all. */
  interface Connection {
    /** What follows ends by this instant, and also by an interrupt or not. */
    void begin(long end, boolean isInterruptible);

    /** Sends a command. It may stay in a buffer until {@link #flush} or {@link #receive}. */
    void send(String command, List<byte[]> words) throws Unanswered;

    /** The operating system has what was sent. */
    void flush() throws Unanswered;

    /** The next reply: bytes, a Long, a list of these, or null. Throws an {@link ErrorReply}. */
    Object receive() throws Unanswered, InterruptedException;

    void close();
  }

  /** A connection that subscribes to one channel. */
  interface Messages {
    /** Subscribes. Returns or throws when the connection has ended. */
    void read() throws Exception;

    /** Asks the server to confirm the subscription once more. Any thread may call it. */
    void confirm() throws Unanswered;

    void close();
  }

  /** Hears the messages of a channel. */
  interface Listener {
    /** The server has confirmed the subscription. */
    void confirmed();

    void received(String text);
  }
}
