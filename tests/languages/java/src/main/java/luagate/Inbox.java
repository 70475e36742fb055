package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import luagate.Scripts.Reply;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.exceptions.JedisException;

/** The channel on which all waits of a client are told what has become of them. */
final class Inbox extends JedisPubSub {
  private static final Pattern MESSAGE =
      Pattern.compile("((\\S+) (\\d+) (\\d+) (\\d+) (\\d+)) ([0-9a-f]{40})");

  private record Wait(String secret, Consumer<Reply> listener) {}

  private final Scripts scripts;
  private final String channel;
  private final Map<String, Wait> waits = new ConcurrentHashMap<>();
  private final CountDownLatch confirmed = new CountDownLatch(1);
  private volatile Boolean heard;
  private volatile boolean closed;

  Inbox(Scripts scripts, String prefix) {
    this.scripts = scripts;
    channel = prefix + ":inbox:" + UUID.randomUUID();
    Thread thread = new Thread(this::run, channel);
    thread.setDaemon(true);
    thread.start();
  }

  private void run() {
    while (!closed) {
      try {
        scripts.redis.subscribe(this, channel);
      } catch (JedisException lost) {
        scripts.redis.getPool().clear();
        LockSupport.parkNanos(50_000_000);
      }
    }
  }

  /** Its channel, once the subscription stands; empty where the server sees nobody listen there. */
  String channel(Duration timeout) throws InterruptedException, TimeoutException {
    if (!confirmed.await(timeout.toNanos(), NANOSECONDS)) {
      throw new TimeoutException("no subscription to " + channel + " within " + timeout);
    }
    if (heard == null) {
      var counts =
          (List<?>)
              scripts.retry(() -> scripts.redis.sendCommand(Command.PUBSUB, "NUMSUB", channel));
      scripts.retry(() -> scripts.redis.publish(channel, "test"));
      heard = (Long) counts.get(1) > 0;
    }
    return heard ? channel : "";
  }

  /** From here on the listener gets what is told to this id and signed with this secret. */
  void listen(String id, String secret, Consumer<Reply> listener) {
    waits.put(id, new Wait(secret, listener));
  }

  void forget(String id) {
    waits.remove(id);
  }

  /** What was told while nobody listened is lost, so all ask again. */
  @Override
  public void onSubscribe(String channel, int count) {
    confirmed.countDown();
    waits.values().forEach(wait -> wait.listener.accept(message(0, 0, 0, Long.MAX_VALUE)));
  }

  @Override
  public void onMessage(String channel, String text) {
    Matcher words = MESSAGE.matcher(text);
    Wait wait = words.matches() ? waits.get(words.group(2)) : null;
    if (wait != null && words.group(7).equals(sha1(wait.secret + words.group(1)))) {
      wait.listener.accept(
          message(
              Long.parseLong(words.group(3)),
              Long.parseLong(words.group(4)),
              Long.parseLong(words.group(5)),
              Long.parseLong(words.group(6))));
    }
  }

  private static Reply message(long permits, long fence, long expiresAt, long now) {
    var fields =
        Map.<String, Object>of(
            "permits", permits, "fence", fence, "expires_at", expiresAt, "now", now);
    return new Reply(fence == 0 ? "hint" : "granted", fields, System.nanoTime());
  }

  private static String sha1(String text) {
    try {
      byte[] digest = MessageDigest.getInstance("SHA-1").digest(text.getBytes(UTF_8));
      return HexFormat.of().formatHex(digest);
    } catch (NoSuchAlgorithmException missing) {
      throw new IllegalStateException(missing); // every Java has it
    }
  }

  void close() {
    closed = true;
    if (isSubscribed()) {
      unsubscribe();
    }
  }
}
