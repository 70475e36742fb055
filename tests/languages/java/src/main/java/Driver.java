import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import luagate.AboveLimitException;
import luagate.ClosedException;
import luagate.Counters;
import luagate.DeniedException;
import luagate.Inspection;
import luagate.InvalidException;
import luagate.LimitMismatchException;
import luagate.LineFullException;
import luagate.LostException;
import luagate.Luagate;
import luagate.NoPermissionException;
import luagate.Permit;
import luagate.Permits;
import luagate.RefusedException;
import luagate.Resized;
import luagate.RevokedException;
import luagate.Semaphore;
import luagate.Several;
import luagate.Several.Want;
import luagate.TimedOutException;
import luagate.UnreachableException;

/** The driver of the fault suite. Its protocol is in {@code tests/languages/faults/README.md}. */
public final class Driver {
  /** A gate, and what it was opened with. */
  private record Opened(Luagate gate, AutoCloseable redis, String url, String prefix) {}

  /** What one {@code acquire} granted. */
  private record Held(Permits permits, Permit permit, CountDownLatch lost) {
    List<Permit> all() {
      return permit == null ? permits.permits() : List.of(permit);
    }

    Duration remaining() {
      return permit == null ? permits.remaining() : permit.remaining();
    }

    AutoCloseable block() {
      return permit == null ? permits : permit;
    }
  }

  /** One line of the input. The key {@code name} begins a want. */
  private record Line(
      String call, String verb, Map<String, String> keys, List<Map<String, String>> wants) {
    String get(String key) {
      return keys.get(key);
    }

    long number(String key) {
      return Long.parseLong(keys.get(key));
    }
  }

  /** The work of {@code use} failed. */
  private static final class WorkFailed extends Exception {
    private static final long serialVersionUID = 1;
  }

  private final PrintStream out = new PrintStream(System.out, true, UTF_8);
  private final Map<String, Opened> gates = new ConcurrentHashMap<>();
  private final Map<String, Held> permits = new ConcurrentHashMap<>();
  private final Map<String, Thread> calls = new ConcurrentHashMap<>();

  public static void main(String[] args) throws IOException {
    new Driver().read();
  }

  private void read() throws IOException {
    var input = new BufferedReader(new InputStreamReader(System.in, UTF_8));
    for (String text = input.readLine(); text != null; text = input.readLine()) {
      Line line = parse(text);
      if (line.verb.equals("exit")) {
        out.println(line.call + " done");
        return;
      }
      Thread thread = new Thread(() -> answer(line), "call " + line.call);
      thread.setDaemon(true);
      calls.put(line.call, thread);
      thread.start();
    }
  }

  private static Line parse(String text) {
    String[] words = text.split(" ");
    var keys = new LinkedHashMap<String, String>();
    var wants = new ArrayList<Map<String, String>>();
    for (int i = 2; i < words.length; i++) {
      int at = words[i].indexOf('=');
      String key = words[i].substring(0, at);
      if (key.equals("name")) {
        wants.add(new LinkedHashMap<>());
      }
      String value = decode(words[i].substring(at + 1));
      keys.put(key, value);
      if (!wants.isEmpty()) {
        wants.get(wants.size() - 1).put(key, value);
      }
    }
    return new Line(words[0], words[1], keys, wants);
  }

  private static String decode(String text) {
    return java.net.URLDecoder.decode(text.replace("+", "%2B"), UTF_8);
  }

  private static String encode(Object value) {
    return String.valueOf(value)
        .codePoints()
        .mapToObj(
            c -> Character.isWhitespace(c) || Character.isISOControl(c) || c == '%' || c == '='
                ? "%%%02X".formatted(c)
                : Character.toString(c))
        .collect(Collectors.joining());
  }

  private void answer(Line line) {
    String reply;
    try {
      reply = run(line);
    } catch (Throwable failed) {
      reply = error(failed);
    }
    calls.remove(line.call);
    out.println(line.call + " " + reply);
  }

  private static String error(Throwable failed) {
    String text = "error kind=" + kind(failed);
    if (failed instanceof RefusedException refused) {
      text += " in_use=%d limit=%d waiting=%d next_expiry=%d"
          .formatted(
              refused.inUse(),
              refused.limit(),
              refused.waiting(),
              refused.nextExpiry().map(Duration::toMillis).orElse(-1L));
    } else if (failed instanceof AboveLimitException above) {
      text += " limit=" + above.limit();
    } else if (failed instanceof LimitMismatchException mismatch) {
      text += " limit=" + mismatch.limit();
    }
    if (failed instanceof NoPermissionException) {
      var logged = new StringWriter();
      failed.printStackTrace(new PrintWriter(logged));
      text += " logged=" + encode(logged.toString());
    }
    String type = failed.getClass().getSimpleName();
    return text + " type=" + type + " message=" + encode(failed.getMessage());
  }

  private static String kind(Throwable failed) {
    var kinds =
        Map.ofEntries(
            Map.entry(TimedOutException.class, "timed_out"),
            Map.entry(DeniedException.class, "denied"),
            Map.entry(LineFullException.class, "full"),
            Map.entry(AboveLimitException.class, "above_limit"),
            Map.entry(LimitMismatchException.class, "limit_mismatch"),
            Map.entry(LostException.class, "lost"),
            Map.entry(RevokedException.class, "revoked"),
            Map.entry(ClosedException.class, "closed"),
            Map.entry(InterruptedException.class, "cancelled"),
            Map.entry(InvalidException.class, "invalid"),
            Map.entry(NoPermissionException.class, "permission"),
            Map.entry(UnreachableException.class, "unreachable"));
    String other = Clients.OF_LIBRARY.isError(failed) ? "server" : "other";
    return kinds.getOrDefault(failed.getClass(), other);
  }

  private String run(Line line) throws Exception {
    return switch (line.verb) {
      case "open" -> open(line);
      case "acquire", "try" -> granted(line, gates.get(line.get("gate")).gate);
      case "refresh" -> refresh(permits.get(line.get("permit")));
      case "release" -> release(permits.get(line.get("permit")));
      case "state" -> state(permits.get(line.get("permit")));
      case "await_lost" -> awaitLost(line);
      case "use" -> use(line);
      case "inspect" -> inspect(semaphore(line));
      case "revoke" -> semaphore(line).revoke(line.get("id")) ? "revoked" : "gone";
      case "resize" -> resize(line);
      case "cancel" -> cancel(line);
      case "close" -> {
        gates.get(line.get("gate")).gate.close();
        yield "done";
      }
      case "close_client" -> {
        gates.get(line.get("gate")).redis.close();
        yield "done";
      }
      case "counters" -> counters(gates.get(line.get("gate")).gate.counters());
      case "threads" -> "done count=" + threads();
      case "arguments" -> arguments(line);
      case "clients" -> clients(line);
      case "interrupts" -> interrupts(line);
      default -> throw new IllegalArgumentException("no such verb: " + line.verb);
    };
  }

  private String open(Line line) throws Exception {
    // The settings that the README shows are those of an address alone.
    String url = line.get("url");
    Clients clients = Clients.OF_LIBRARY;
    AutoCloseable redis =
        line.get("sentinel") != null
            ? clients.sentinel(url, line.get("sentinel"))
            : "1".equals(line.get("cluster")) ? clients.cluster(url) : clients.open(url);
    String prefix = line.keys.getOrDefault("prefix", "luagate");
    Luagate gate = new Luagate(redis, prefix);
    gates.put(line.get("gate"), new Opened(gate, redis, url, prefix));
    return "done";
  }

  private String granted(Line line, Luagate gate) throws Exception {
    Held held = acquire(line, gate);
    permits.put(line.keys.getOrDefault("permit", line.call), held);
    return "granted id=%s fence=%s permits=%s limit=%s"
        .formatted(
            encode(held.all().get(0).id()),
            join(held.all().stream().map(Permit::fence).toList()),
            join(held.all().stream().map(Permit::permits).toList()),
            join(held.all().stream().map(Permit::limit).toList()));
  }

  private static String join(List<?> values) {
    return values.stream().map(Driver::encode).collect(Collectors.joining(","));
  }

  private Held acquire(Line line, Luagate gate) throws InterruptedException {
    var lost = new CountDownLatch(1);
    Runnable report =
        () -> {
          lost.countDown();
          if ("1".equals(line.get("report"))) {
            out.println("! lost " + line.call);
          }
        };
    Want[] wants = line.wants.stream().map(want -> want(gate, want, report)).toArray(Want[]::new);
    boolean waits = !line.verb.equals("try");
    Duration timeout =
        line.get("timeout") == null ? null : Duration.ofMillis(line.number("timeout"));
    if (wants.length != 1 || "1".equals(line.get("several"))) {
      Several several = gate.several(wants);
      Permits all =
          !waits
              ? several.tryAcquire()
              : timeout == null ? several.acquire() : several.acquire(timeout);
      return new Held(all, null, lost);
    }
    Semaphore semaphore = wants[0].semaphore();
    int permits = wants[0].permits();
    Permit one =
        !waits
            ? semaphore.tryAcquire(permits)
            : timeout == null ? semaphore.acquire(permits) : semaphore.acquire(permits, timeout);
    return new Held(null, one, lost);
  }

  private static Want want(Luagate gate, Map<String, String> want, Runnable report) {
    Semaphore semaphore = semaphore(gate, want).onLost(permit -> report.run());
    return new Want(semaphore, Integer.parseInt(want.getOrDefault("permits", "1")));
  }

  private static Semaphore semaphore(Luagate gate, Map<String, String> want) {
    String name = want.get("name");
    Semaphore semaphore =
        switch (want.getOrDefault("kind", "semaphore")) {
          case "mutex" -> gate.mutex(name);
          case "read" -> gate.rwlock(name).read();
          case "write" -> gate.rwlock(name).write();
          default -> gate.semaphore(name, Integer.parseInt(want.getOrDefault("limit", "1")));
        };
    for (var setting : want.entrySet()) {
      String value = setting.getValue();
      semaphore =
          switch (setting.getKey()) {
            case "lease" -> lease(semaphore, value);
            case "max_waiting" -> semaphore.maxWaiting(Integer.parseInt(value));
            case "at_least" -> semaphore.atLeast(Duration.ofMillis(Long.parseLong(value)));
            case "head_start" -> semaphore.headStart(Duration.ofMillis(Long.parseLong(value)));
            case "label" -> semaphore.label(value);
            case "strict" -> value.equals("1") ? semaphore.strict() : semaphore;
            default -> semaphore;
          };
    }
    return semaphore;
  }

  private static Semaphore lease(Semaphore semaphore, String lease) {
    if (lease.equals("permanent")) {
      return semaphore.permanent();
    }
    Semaphore leased = semaphore.lease(Duration.ofMillis(Long.parseLong(lease.replace("+", ""))));
    return lease.endsWith("+") ? leased.autoRenew() : leased;
  }

  private Semaphore semaphore(Line line) {
    return semaphore(gates.get(line.get("gate")).gate, line.wants.get(0));
  }

  private static String refresh(Held held) {
    if (held.permit != null) {
      held.permit.refresh();
    } else {
      held.permits.refresh();
    }
    return "refreshed";
  }

  private static String release(Held held) {
    boolean wasHeld = held.permit != null ? held.permit.release() : held.permits.release();
    return "released held=" + wasHeld;
  }

  private static String state(Held held) {
    Duration left = held.remaining();
    if (left.isZero()) {
      return "lost";
    }
    return "held remaining=" + (left.equals(Permit.FOREVER) ? "never" : left.toMillis());
  }

  private String awaitLost(Line line) throws InterruptedException {
    CountDownLatch lost = permits.get(line.get("permit")).lost;
    return lost.await(line.number("timeout"), TimeUnit.MILLISECONDS) ? "lost" : "held";
  }

  private String use(Line line) throws Exception {
    Held held = acquire(line, gates.get(line.get("gate")).gate);
    try (var block = held.block()) {
      String value = work(line);
      if ("1".equals(line.get("check"))) {
        held.all().forEach(Permit::check);
      }
      return "returned value=" + value;
    } catch (WorkFailed failed) {
      return "raised";
    }
  }

  private String work(Line line) throws InterruptedException, WorkFailed {
    out.println("! working " + line.call);
    Thread.sleep(Long.parseLong(line.keys.getOrDefault("hold", "0")));
    if ("error".equals(line.get("work"))) {
      throw new WorkFailed();
    }
    return "work";
  }

  private static String inspect(Semaphore semaphore) {
    Inspection state = semaphore.inspect();
    return "state limit=%d in_use=%d waiting=%d holders=%s waiters=%s labels=%s"
        .formatted(
            state.limit(),
            state.inUse(),
            state.waiterCount(),
            join(state.holders().stream().map(Inspection.Holder::id).toList()),
            join(state.waiters().stream().map(Inspection.Waiter::id).toList()),
            join(state.holders().stream().map(Inspection.Holder::label).toList()));
  }

  private String resize(Line line) {
    Resized resized = semaphore(line).resize(Integer.parseInt(line.get("to")));
    return "resized old=%d new=%d".formatted(resized.oldLimit(), resized.newLimit());
  }

  private String cancel(Line line) {
    Thread call = calls.get(line.get("call"));
    if (call != null) {
      call.interrupt();
    }
    return "done";
  }

  private static String counters(Counters counters) {
    return "counters waited=%d line_full=%d granted=%d denied=%d lost=%d renewed=%d reconnects=%d"
        .formatted(
            counters.waited(),
            counters.lineFull(),
            counters.granted(),
            counters.denied(),
            counters.lost(),
            counters.renewed(),
            counters.reconnects());
  }

  /** Without those that run the commands. */
  private static long threads() {
    var all = Thread.getAllStackTraces().keySet().stream();
    return all.filter(thread -> !thread.getName().startsWith("call ")).count();
  }

  private String arguments(Line line) throws Exception {
    Opened opened = line.get("gate") == null ? any() : gates.get(line.get("gate"));
    var arguments = new Arguments(opened.redis, opened.gate);
    return "checked total=" + arguments.total + " wrong=" + join(arguments.wrong);
  }

  private Opened any() {
    return gates.values().iterator().next();
  }

  private String clients(Line line) throws Exception {
    Kinds kinds = new Kinds(line.get("url") == null ? any().url : line.get("url"), line.keys);
    return "checked works=%s refused=%s wrong=%s"
        .formatted(join(kinds.works), join(kinds.refused), join(kinds.wrong));
  }

  private String interrupts(Line line) throws Exception {
    Semaphore semaphore = semaphore(line);
    Thread caller = Thread.currentThread();
    var random = ThreadLocalRandom.current();
    int granted = 0;
    int interrupted = 0;
    for (int i = 0; i < line.number("count"); i++) {
      long afterNs = random.nextLong(600_000);
      Thread interrupter =
          new Thread(
              () -> {
                java.util.concurrent.locks.LockSupport.parkNanos(afterNs);
                caller.interrupt();
              });
      interrupter.start();
      try {
        semaphore.acquire(Duration.ofSeconds(10)).release();
        granted++;
      } catch (InterruptedException interrupt) {
        interrupted++;
      }
      join(interrupter);
      if (Thread.interrupted()) {
        interrupted++;
      }
    }
    return "done granted=" + granted + " interrupted=" + interrupted;
  }

  private static void join(Thread thread) {
    boolean isInterrupted = false;
    while (thread.isAlive()) {
      try {
        thread.join();
      } catch (InterruptedException interrupt) {
        isInterrupted = true;
      }
    }
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
