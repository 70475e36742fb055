import java.net.URI;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.ConnectionProvider;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.providers.SentineledConnectionProvider;
import redis.clients.jedis.util.JedisURIHelper;

/** Makes clients of Jedis, of the version that the program runs with. */
final class JedisClients implements Clients {
  /** A client of one server: RedisClient, or JedisPooled before Jedis 7.2. */
  @Override
  public UnifiedJedis open(String url) throws ReflectiveOperationException {
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

  @Override
  public UnifiedJedis cluster(String url) {
    return client(new ClusterConnectionProvider(Set.of(address(url)), config(url)));
  }

  @Override
  public UnifiedJedis sentinel(String url, String master) {
    var config = config(url);
    return client(new SentineledConnectionProvider(master, config, Set.of(address(url)), config));
  }

  @Override
  public boolean isError(Throwable failed) {
    return failed instanceof JedisException;
  }

  /** One kind that luagate accepts, and a provider that it does not know. */
  @Override
  public Map<String, Maker> more(String url) {
    return Map.of(
        "UnifiedJedis", () -> client(provider(url)),
        "own_provider", () -> client(new OwnProvider(provider(url))));
  }

  private record OwnProvider(ConnectionProvider inner) implements ConnectionProvider {
    @Override
    public Connection getConnection() {
      return inner.getConnection();
    }

    @Override
    public Connection getConnection(CommandArguments arguments) {
      return inner.getConnection(arguments);
    }

    @Override
    public void close() throws Exception {
      inner.close();
    }
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
