import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import luagate.InvalidException;
import luagate.Luagate;

/**
 * Opens a gate on each kind of client of the library. {@code cluster} and {@code sentinel} are addresses
 * {@code host:port}; without them these kinds are left out.
 */
final class Kinds {
  final List<String> works = new ArrayList<>();
  final List<String> refused = new ArrayList<>();
  final List<String> wrong = new ArrayList<>();

  Kinds(String url, Map<String, String> servers) {
    Clients clients = Clients.OF_LIBRARY;
    check("one_server", () -> clients.open(url));
    clients.more(url).forEach(this::check);
    if (servers.containsKey("cluster")) {
      check("cluster", () -> clients.cluster("redis://" + servers.get("cluster")));
    }
    if (servers.containsKey("sentinel")) {
      String master = servers.getOrDefault("master", "mymaster");
      check("sentinel", () -> clients.sentinel("redis://" + servers.get("sentinel"), master));
    }
  }

  private void check(String kind, Clients.Maker maker) {
    try (AutoCloseable redis = maker.make();
        Luagate gate = new Luagate(redis)) {
      gate.mutex("kind:" + kind).acquire(Duration.ofSeconds(5)).release();
      works.add(kind);
    } catch (InvalidException invalid) {
      (invalid.getMessage().contains("RedisClient") ? refused : wrong).add(kind);
    } catch (Exception failed) {
      wrong.add(kind + ": " + failed);
    }
  }
}
