import java.net.URI;
import java.time.Duration;
import redis.clients.jedis.ConnectionFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.providers.ConnectionProvider;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.JedisURIHelper;

/** Makes clients of Jedis, of the version that the program runs with. */
final class Clients {
  private Clients() {}

  /** A client of one server: RedisClient, or JedisPooled before Jedis 7.2. */
  static UnifiedJedis open(String url) throws ReflectiveOperationException {
    try {
      return (UnifiedJedis) type("RedisClient").getMethod("create", String.class).invoke(null, url);
    } catch (ClassNotFoundException old) {
      return pooled(url);
    }
  }

  static UnifiedJedis pooled(String url) throws ReflectiveOperationException {
    return (UnifiedJedis) type("JedisPooled").getConstructor(String.class).newInstance(url);
  }

  static Class<?> type(String name) throws ClassNotFoundException {
    return Class.forName("redis.clients.jedis." + name);
  }

  static PooledConnectionProvider provider(String url) {
    return new PooledConnectionProvider(new ConnectionFactory(address(url), config(url)));
  }

  static UnifiedJedis client(ConnectionProvider provider) {
    return new UnifiedJedis(provider, 1, Duration.ZERO);
  }

  private static HostAndPort address(String url) {
    return JedisURIHelper.getHostAndPort(URI.create(url));
  }

  private static JedisClientConfig config(String url) {
    URI uri = URI.create(url);
    return DefaultJedisClientConfig.builder()
        .user(JedisURIHelper.getUser(uri))
        .password(JedisURIHelper.getPassword(uri))
        .build();
  }
}
