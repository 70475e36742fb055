import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import redis.clients.jedis.ConnectionFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisSocketFactory;
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

  /** A client that reads each reply that is read while {@code delayMs} is set this much later. */
  static UnifiedJedis delayed(String url, AtomicLong delayMs) {
    JedisSocketFactory sockets = () -> delayedSocket(address(url), delayMs);
    return client(new PooledConnectionProvider(new ConnectionFactory(sockets, config(url))));
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

  private static Socket delayedSocket(HostAndPort address, AtomicLong delayMs) {
    try {
      return new DelayedSocket(address, delayMs);
    } catch (IOException failed) {
      throw new redis.clients.jedis.exceptions.JedisConnectionException(failed);
    }
  }

  private static final class DelayedSocket extends Socket {
    private final AtomicLong delayMs;

    DelayedSocket(HostAndPort address, AtomicLong delayMs) throws IOException {
      super(address.getHost(), address.getPort());
      this.delayMs = delayMs;
    }

    @Override
    public InputStream getInputStream() throws IOException {
      return new FilterInputStream(super.getInputStream()) {
        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
          int count = super.read(bytes, offset, length);
          try {
            Thread.sleep(delayMs.get());
          } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
          }
          return count;
        }
      };
    }
  }
}
