import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import luagate.DeniedException;
import luagate.LineFullException;
import luagate.LostException;
import luagate.Luagate;
import luagate.Permit;
import luagate.Permits;
import luagate.Several.Want;
import luagate.TimedOutException;
import redis.clients.jedis.RedisClient;

/**
 * Reads one command per line, runs it, and prints one line with its result: {@code URL PREFIX}.
 *
 * <p>acquire MS WANT, try WANT, several MS WANT..., try_several WANT...: acquire permits. refresh,
 * release, look: apply to the permits granted last. await_lost MS: waits for the notice that they
 * are lost. A WANT is NAME/LIMIT/PERMITS/LEASE_MS/MAX_WAITING/AT_LEAST_MS, and /HEAD_START_MS if it
 * has one. A LEASE_MS that ends with + is renewed; - means no explicit lease.
 */
public final class Limits {
  private final Luagate gate;
  private Permits held;
  private CountDownLatch lost; // is zero after the notice of loss
  private Permit permit; // if the permits are of one semaphore

  public static void main(String[] args) throws Exception {
    var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    try (var redis = RedisClient.create(args[0]);
        var gate = new Luagate(redis, args[1])) {
      var limits = new Limits(gate);
      var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      String line;
      while ((line = input.readLine()) != null) {
        out.println(limits.answer(line.split(" ")));
      }
    }
  }

  private Limits(Luagate gate) {
    this.gate = gate;
  }

  private String answer(String[] words) throws InterruptedException {
    try {
      return switch (words[0]) {
        case "refresh" -> refresh();
        case "release" -> "released " + (permit != null ? permit.release() : held.release());
        case "look" -> look();
        case "await_lost" ->
            lost.await(Long.parseLong(words[1]), TimeUnit.MILLISECONDS) ? "lost" : "held";
        default -> ask(words[0], Arrays.asList(words).subList(1, words.length));
      };
    } catch (LineFullException full) {
      return "full " + full.waiting();
    } catch (DeniedException denied) {
      return "none";
    } catch (TimedOutException over) {
      return "timed_out";
    } catch (LostException lost) {
      return "lost";
    } catch (RuntimeException refused) {
      return "refused " + refused.getMessage();
    }
  }

  private String refresh() {
    if (permit != null) {
      permit.refresh();
    } else {
      held.refresh();
    }
    return "refreshed";
  }

  private String look() {
    boolean isLost = permit != null ? permit.isLost() : held.isLost();
    Duration left = permit != null ? permit.remaining() : held.remaining();
    return (isLost ? "lost " : "held ") + left.toMillis();
  }

  private String ask(String verb, List<String> words) throws InterruptedException {
    boolean waits = verb.equals("acquire") || verb.equals("several");
    Duration timeout = waits ? Duration.ofMillis(Long.parseLong(words.get(0))) : Duration.ZERO;
    lost = new CountDownLatch(1);
    Want[] wants =
        words.subList(waits ? 1 : 0, words.size()).stream().map(this::want).toArray(Want[]::new);
    Permit one = null;
    Permits all = null;
    switch (verb) {
      case "acquire" -> one = wants[0].semaphore().acquire(wants[0].permits(), timeout);
      case "try" -> one = wants[0].semaphore().tryAcquire(wants[0].permits());
      case "several" -> all = gate.several(wants).acquire(timeout);
      default -> all = gate.several(wants).tryAcquire();
    }
    permit = one;
    held = all;
    if (permit != null) {
      return "held " + permit.fence();
    }
    return "held " + held.fences().toString().replaceAll("[\\[\\],]", "");
  }

  private Want want(String text) {
    String[] words = text.split("/");
    CountDownLatch notify = lost;
    var semaphore =
        gate.semaphore(words[0], Integer.parseInt(words[1]))
            .maxWaiting(Integer.parseInt(words[4]))
            .atLeast(Duration.ofMillis(Long.parseLong(words[5])))
            .onLost(permit -> notify.countDown());
    if (words[3].endsWith("+")) {
      semaphore = semaphore.autoRenew();
    }
    if (!words[3].equals("-")) {
      semaphore = semaphore.lease(Duration.ofMillis(Long.parseLong(words[3].replace("+", ""))));
    }
    if (words.length > 6) {
      semaphore = semaphore.headStart(Duration.ofMillis(Long.parseLong(words[6])));
    }
    return new Want(semaphore, Integer.parseInt(words[2]));
  }
}
