import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import luagate.InvalidException;
import luagate.Luagate;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.providers.ConnectionProvider;

/**
 * Opens a gate on each kind of client of Jedis. {@code cluster} and {@code sentinel} are addresses
 * {@code host:port}; without them these kinds are left out.
 */
final class Kinds {
  private interface Maker {
    UnifiedJedis make() throws Exception;
  }

  final List<String> works = new ArrayList<>();
  final List<String> refused = new ArrayList<>();
  final List<String> wrong = new ArrayList<>();

  Kinds(String url, Map<String, String> servers) {
    check("one_server", () -> Clients.open(url));
    check("UnifiedJedis", () -> Clients.client(Clients.provider(url)));
    if (servers.containsKey("cluster")) {
      check("cluster", () -> Clients.cluster("redis://" + servers.get("cluster")));
    }
    if (servers.containsKey("sentinel")) {
      String master = servers.getOrDefault("master", "mymaster");
      check("sentinel", () -> Clients.sentinel("redis://" + servers.get("sentinel"), master));
    }
    check("own_provider", () -> Clients.client(new OwnProvider(Clients.provider(url))));
  }

  private void check(String kind, Maker maker) {
    try (UnifiedJedis redis = maker.make();
        Luagate gate = new Luagate(redis)) {
      gate.mutex("kind:" + kind).acquire(Duration.ofSeconds(5)).release();
      works.add(kind);
    } catch (InvalidException invalid) {
      (invalid.getMessage().contains("RedisClient") ? refused : wrong).add(kind);
    } catch (Exception failed) {
      wrong.add(kind + ": " + failed);
    }
  }

  /** A provider that luagate does not know. */
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
}
