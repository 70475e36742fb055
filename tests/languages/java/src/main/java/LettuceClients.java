import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.util.Map;

/** Makes clients of Lettuce, of the version that the program runs with. */
final class LettuceClients implements Clients {
  @Override
  public AbstractRedisClient open(String url) {
    return RedisClient.create(url);
  }

  @Override
  public AbstractRedisClient cluster(String url) {
    return RedisClusterClient.create(url);
  }

  @Override
  public AbstractRedisClient sentinel(String url, String master) {
    RedisURI sentinel = RedisURI.create(url);
    return RedisClient.create(
        RedisURI.Builder.sentinel(sentinel.getHost(), sentinel.getPort(), master).build());
  }

  /** A cluster is no cluster until it is asked, a client without an address is refused. */
  @Override
  public Map<String, Maker> more(String url) {
    return Map.of("without_address", RedisClient::create);
  }

  @Override
  public boolean isError(Throwable failed) {
    return failed instanceof RedisException;
  }
}
