import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.logging.Level;
import java.util.logging.Logger;
import luagate.DeniedException;
import luagate.Luagate;
import luagate.LuagateException;
import luagate.Permit;
import luagate.Several.Want;
import luagate.UnexpectedReplyException;
import org.apache.commons.pool2.BasePooledObjectFactory;
import org.apache.commons.pool2.PooledObject;
import org.apache.commons.pool2.impl.DefaultPooledObject;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.providers.PooledConnectionProvider;

/**
 * Calls luagate with random replies of the server. Each call returns a value or throws an exception
 * of luagate. A reply that no script returns is not taken for another one.
 */
public final class Replies {
  private static final long NOW = 1_795_205_203_248L;
  private static final Duration SHORT = Duration.ofMillis(5);

  /** Each call has the next of these replies, then always the last one. Nothing is sent. */
  private static final class Forger extends Connection {
    private final Deque<Object> replies;

    Forger(Deque<Object> replies) {
      this.replies = replies;
    }

    @Override
    public void connect() {
      throw new JedisConnectionException("messages are not heard");
    }

    @Override
    public void setSoTimeout(int timeout) {}

    @Override
    public void sendCommand(CommandArguments command) {
      if (command.getCommand() != Command.EVALSHA) {
        throw new JedisConnectionException("messages are not heard");
      }
    }

    @Override
    public Object getOne() {
      synchronized (replies) {
        Object reply = replies.size() > 1 ? replies.poll() : replies.peek();
        return reply == NULL ? null : reply;
      }
    }
  }

  private static final class Factory extends BasePooledObjectFactory<Connection> {
    private final Deque<Object> replies;

    Factory(Deque<Object> replies) {
      this.replies = replies;
    }

    @Override
    public Connection create() {
      return new Forger(replies);
    }

    @Override
    public PooledObject<Connection> wrap(Connection connection) {
      return new DefaultPooledObject<>(connection);
    }
  }

  private interface Call {
    void run(Luagate gate) throws Exception;
  }

  private static final Object NULL = new Object();
  private static final List<Object> GRANTED =
      List.of(bytes("granted"), 2L, 1L, NOW + 60_000, NOW, 1L, 5L);

  private static final Map<String, Call> CALLS =
      new TreeMap<>(
          Map.of(
              "tryAcquire", gate -> gate.semaphore("one", 5).tryAcquire(),
              "acquire", gate -> gate.semaphore("one", 5).strict().acquire(SHORT),
              "resize", gate -> gate.semaphore("one", 5).resize(7),
              "inspect", gate -> gate.semaphore("one", 5).inspect(),
              "revoke", gate -> gate.semaphore("one", 5).revoke("id"),
              "several", gate -> gate.several(wants(gate)).acquire(SHORT),
              "trySeveral", Replies::trySeveral,
              "held refresh", gate -> held(gate).refresh(),
              "held release", gate -> held(gate).release()));

  private static final List<String> WORDS =
      List.of("granted", "held", "queued", "denied", "above_limit", "released", "cancelled", "gone",
          "refreshed", "lost", "resized", "unchanged", "other");
  private static final long[] NUMBERS = {
    -1, 0, 1, 2, 3, NOW, NOW + 1, NOW + 30_000, NOW * 1_000, (1L << 31) - 1, 1L << 31, 1L << 53,
    Long.MAX_VALUE, Long.MIN_VALUE, -2
  };

  private final Random random = new Random(1);

  public static void main(String[] args) throws Exception {
    Logger.getLogger("luagate").setLevel(Level.OFF);
    refusals();
    var replies = new Replies();
    var names = new ArrayList<>(CALLS.keySet());
    int cases = Integer.parseInt(System.getenv().getOrDefault("LUAGATE_CASES", "500"));
    for (int i = 0; i < cases; i++) {
      String name = names.get(replies.random.nextInt(names.size()));
      failure(name, Duration.ofMillis(20), replies.reply(), replies.reply());
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes();
  }

  private static Want[] wants(Luagate gate) {
    return new Want[] {
      new Want(gate.semaphore("{g}:one", 5)), new Want(gate.semaphore("{g}:other", 5))
    };
  }

  private static Permit held(Luagate gate) {
    return gate.semaphore("one", 5).tryAcquire(2);
  }

  private static void trySeveral(Luagate gate) {
    int count = gate.several(wants(gate)).tryAcquire().permits().size();
    if (count != 2) {
      throw new AssertionError(count + " permits");
    }
  }

  /** Makes a call with these replies. Returns the exception of luagate, or null. */
  private static LuagateException failure(String name, Duration longest, Object... forged)
      throws Exception {
    var replies = new ArrayDeque<Object>(Arrays.asList(forged));
    if (name.startsWith("held ")) {
      replies.addFirst(GRANTED);
    }
    String text = name + " " + Arrays.deepToString(forged);
    var provider = new PooledConnectionProvider(new Factory(replies));
    try (var redis = JedisClients.client(provider);
        var gate = Luagate.builder(redis).callTimeout(longest).build()) {
      CALLS.get(name).run(gate);
      return null;
    } catch (LuagateException expected) {
      return expected;
    } catch (JedisDataException ofServer) {
      return null; // an error of the server reaches the caller as it is
    } catch (Exception | AssertionError wrong) {
      throw new AssertionError(text, wrong);
    }
  }

  private static void refusals() throws Exception {
    List<Object> usage = List.of(1L, 1L, 1L);
    List<Object> grant = List.of(1L, 1L, NOW + 9_999, 1L, 1L);
    refused("tryAcquire", NULL);
    refused("tryAcquire", 1L);
    refused("tryAcquire", List.of());
    refused("tryAcquire", Collections.singletonList(null));
    refused("tryAcquire", List.of(bytes("other"), 1L));
    refused("tryAcquire", GRANTED.subList(0, 6));
    refused("tryAcquire", List.of(bytes("denied"), -2L, 1L, 1L, 1L, NOW));
    refused("tryAcquire", List.of(bytes("denied"), 1L, bytes("1"), 1L, 1L, NOW));
    refused("tryAcquire", List.of(bytes("queued"), 1L, 1L, 1L, 1L, 1L, NOW));
    refused("resize", List.of(bytes("unchanged"), 1L, 1L));
    refused("inspect", inspection(1, List.of(List.of(1L, 1L, 1L, 1L, 1L))));
    refused("inspect", inspection(1, List.of(1L)));
    refused("inspect", inspection(1, 1L));
    for (long index : new long[] {-1, 0, 3}) {
      var usages = List.of(usage, usage);
      refused("trySeveral", List.of(bytes("denied"), index, 1L, NOW, usages, 0L));
      refused("trySeveral", List.of(bytes("above_limit"), index, 1L, NOW, 0L));
    }
    refused("trySeveral", List.of(bytes("denied"), 1L, 1L, NOW, List.of(usage), 0L));
    refused("trySeveral", List.of(bytes("granted"), NOW, List.of(grant)));
    refused("trySeveral", List.of(bytes("granted"), NOW, List.of(grant, usage)));
    check("inspect", null, inspection(1L << 53, List.of())); // a page without rows is the last one
    check("tryAcquire", DeniedException.class, List.of(bytes("denied"), 1L, 1L, 1L, 1L, NOW));
  }

  private static List<Object> inspection(long count, Object holders) {
    return List.of(1L, 0L, 1L, count, count, 1L, NOW, holders, List.of());
  }

  private static void refused(String name, Object reply) throws Exception {
    check(name, UnexpectedReplyException.class, reply);
  }

  private static void check(String name, Class<?> expected, Object reply) throws Exception {
    LuagateException failure = failure(name, Duration.ofSeconds(60), reply);
    if (expected != (failure == null ? null : failure.getClass())) {
      throw new AssertionError("%s %s: expected %s".formatted(name, reply, expected), failure);
    }
  }

  // --- Random replies ---

  private long number() {
    return NUMBERS[random.nextInt(NUMBERS.length)];
  }

  private Object cell() {
    var others = new Object[] {bytes("a/b"), bytes(""), "", true, 0.5, List.of(), null};
    return random.nextInt(4) > 0 ? number() : others[random.nextInt(others.length)];
  }

  private List<Object> list(int longest, java.util.function.Supplier<?> one) {
    var list = new ArrayList<Object>();
    for (int i = random.nextInt(longest + 1); i > 0; i--) {
      list.add(one.get());
    }
    return list;
  }

  private List<Object> rows(int longest) {
    return list(3, () -> list(longest, this::cell));
  }

  private Object field() {
    return random.nextInt(6) > 0 ? cell() : rows(6);
  }

  private List<Object> numbers(int length) {
    var numbers = new ArrayList<Object>();
    for (int i = 0; i < length; i++) {
      numbers.add(number());
    }
    return numbers;
  }

  private Object reply() {
    var reply = new ArrayList<Object>();
    reply.add(bytes(WORDS.get(random.nextInt(WORDS.size()))));
    switch (random.nextInt(6)) {
      case 0 -> {
        Object field = field();
        return field == null ? NULL : field;
      }
      case 1 -> {
        return list(9, this::field);
      }
      case 2 -> reply.addAll(list(6, this::field));
      case 3 -> reply.addAll(numbers(6));
      case 4 -> {
        List<Object> counts = numbers(7);
        counts.add(rows(6));
        counts.add(rows(6));
        return counts;
      }
      default -> {
        reply.set(0, bytes("granted"));
        reply.addAll(List.of(number(), list(3, () -> numbers(5))));
      }
    }
    return reply;
  }
}
