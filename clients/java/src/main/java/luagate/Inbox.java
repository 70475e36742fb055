package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import luagate.Scripts.Reply;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.exceptions.JedisException;

/** The channel on which a client receives messages for all its waiters. */
final class Inbox extends JedisPubSub {
  private static final Pattern MESSAGE =
      Pattern.compile("((\\S+) (\\d+) (\\d+) (\\d+|-1) (\\d+)) ([0-9a-f]{40})");

  /** Messages may have been lost, so the waiter asks again now. */
  static final Reply ASK_AGAIN =
      new Reply(
          "hint",
          Map.of("permits", 0L, "fence", 0L, "expires_at", 0L, "now", Long.MAX_VALUE),
          System.nanoTime());

  /** By id. */
  private final Map<String, Request> requests = new ConcurrentHashMap<>();

  private final Scripts scripts;
  private final String channel;
  private final CountDownLatch confirmed = new CountDownLatch(1);
  private volatile boolean reachable;
  private volatile boolean closed;

  Inbox(Scripts scripts, String prefix) {
    this.scripts = scripts;
    channel = prefix + ":inbox:" + UUID.randomUUID();
    Thread thread = new Thread(this::run, channel);
    thread.setDaemon(true);
    thread.start();
  }

  void add(Request request) {
    requests.put(request.id, request);
  }

  void remove(Request request) {
    requests.remove(request.id);
  }

  private void run() {
    while (!closed) {
      try {
        scripts.redis.subscribe(this, channel);
      } catch (JedisException lost) {
        LockSupport.parkNanos(MILLISECONDS.toNanos(50));
      }
    }
  }

  /** The channel, once it is subscribed. Empty if the server has no subscriber for it. */
  String channel(Duration timeout) throws InterruptedException, TimeoutException {
    if (!confirmed.await(timeout.toNanos(), NANOSECONDS)) {
      throw new TimeoutException(
          "the subscription to " + this.channel + " was not confirmed within " + timeout);
    }
    if (!reachable) {
      var numsub = new CommandArguments(Command.PUBSUB).add("NUMSUB").add(channel);
      var counts = (List<?>) scripts.retry(() -> scripts.redis.executeCommand(numsub));
      reachable = (Long) counts.get(1) > 0;
      // This fails if an ACL forbids it. The scripts would only send no messages.
      scripts.retry(() -> scripts.redis.publish(channel, ""));
    }
    return reachable ? channel : "";
  }

  @Override
  public void onSubscribe(String channel, int count) {
    if (closed) {
      unsubscribe();
    }
    confirmed.countDown();
    // Messages may have been lost before the subscription, so all waiters ask again.
    requests.values().forEach(request -> request.deliver(ASK_AGAIN));
  }

  @Override
  public void onMessage(String channel, String text) {
    long received = System.nanoTime();
    Matcher words = MESSAGE.matcher(text);
    Request request = words.matches() ? requests.get(words.group(2)) : null;
    if (request == null
        || !words.group(7).equals(Scripts.sha1(request.secret + words.group(1)))) {
      return;
    }
    Map<String, Object> fields = new HashMap<>();
    for (String field : List.of("permits", "fence", "expires_at", "now")) {
      fields.put(field, Long.parseLong(words.group(fields.size() + 3)));
    }
    request.deliver(new Reply("message", fields, received));
  }

  void close() {
    closed = true;
    try {
      unsubscribe();
    } catch (JedisException notSubscribed) {
      // The loop in `run` ends before the next subscription.
    }
  }
}
