package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

/** Grants permits of several semaphores, all or none. */
public final class Several {
  private static final int MOST_SEMAPHORES = 64;

  /** A number of permits of one semaphore. */
  public record Want(Semaphore semaphore, int permits) {
    /** The semaphore is a mutex, or one permit of it is enough. */
    public Want(Semaphore semaphore) {
      this(semaphore, 1);
    }

    /** Throws {@link InvalidException}. */
    public Want {
      Settings.check(semaphore != null, "semaphore", null, "a Semaphore");
      semaphore.settings.serverPermits(permits);
    }

    private Settings settings() {
      return semaphore.settings;
    }

    private int serverPermits() {
      return settings().serverPermits(permits);
    }

    private String key() {
      return settings().key();
    }
  }

  private final Luagate gate;
  private final List<Want> wants;

  Several(Luagate gate, Want[] array) {
    Settings.check(
        array != null && !Arrays.asList(array).contains(null), "several", null, "each a Want");
    wants = List.of(array);
    Settings.check(
        !wants.isEmpty() && wants.size() <= MOST_SEMAPHORES,
        "several",
        wants.size() + " semaphores",
        "1 to " + MOST_SEMAPHORES);
    var keys = new HashSet<String>();
    for (Want want : wants) {
      Settings.check(
          keys.add(want.key()),
          "several",
          want.key() + " twice",
          "each semaphore once. Ask for more permits of it instead");
      Settings.check(
          want.settings().gate() == gate,
          "several",
          "a semaphore of another Luagate",
          "semaphores of the same Luagate");
    }
    this.gate = gate;
  }

  /**
   * Returns permits of all at once. Throws {@link DeniedException} if they are not free or a caller
   * waits. The names must share a group, as in {@code {x}:a} and {@code {x}:b}. Ignores
   * {@link Semaphore#headStart}. Blocks for a round trip, at most for the call timeout of the gate.
   * After an exception nothing stays held.
   */
  public Permits tryAcquire() {
    String tags =
        wants.stream()
            .map(want -> want.settings().tag())
            .distinct()
            .collect(Collectors.joining(", "));
    Settings.check(
        !tags.contains(", "),
        "tryAcquire",
        "the hash tags " + tags,
        "names with one hash tag, as {x}:a and {x}:b. For other names, call acquire");
    String id = wants.get(0).settings().newId();
    var retry = new Retry(wants.get(0).key(), gate.callTimeoutNs(), false);
    try {
      long end = System.nanoTime() + gate.callTimeoutNs();
      while (System.nanoTime() - end < 0) {
        Permits granted = tryAcquire(id, retry);
        if (granted.permits().stream().allMatch(permit -> permit.lease.left() > 0)) {
          granted.permits().forEach(permit -> gate.counts().grant(false));
          granted.permits().forEach(Permit::makePermanent);
          return granted;
        }
        granted.permits().forEach(lost -> lost.lease.finish()); // the reply was read too late
      }
      throw new UnreachableException(wants.get(0).key() + Retry.TOO_LATE, null);
    } catch (DeniedException | AboveLimitException refused) {
      if (retry.isUnsure()) {
        release(id, retry);
      }
      throw refused;
    } catch (LimitMismatchException mismatch) {
      // It may hold permits.
      Release.await(release(id, retry), System.nanoTime() + gate.callTimeoutNs());
      throw mismatch;
    } catch (RuntimeException failed) {
      release(id, retry);
      throw failed;
    }
  }

  /** Releases in the background what the id has. */
  private List<CompletableFuture<Void>> release(String id, Retry retry) {
    return wants.stream()
        .map(want -> Release.start(want.settings(), id, want.settings().leaseNs(), retry))
        .toList();
  }

  private Permits tryAcquire(String id, Retry retry) {
    var keys = wants.stream().flatMap(want -> want.settings().keys().stream()).toList();
    var argv = new ArrayList<Object>(List.of(id));
    for (Want want : wants) {
      Settings of = want.settings();
      argv.addAll(List.of(want.serverPermits(), of.limit(), of.firstLeaseMs(), of.atLeastMs()));
    }
    Reply reply = gate.calls().callOnceMore("semaphore/try_acquire_several", keys, argv, retry);
    if (!reply.word().equals("granted") && !reply.word().equals("held")
        && reply.number("still_held") > 0) {
      retry.unanswered(); // an earlier run of this call granted some
    }
    switch (reply.word()) {
      case "denied" -> {
        LuagateException denied = denied(reply);
        gate.counts().denied.increment();
        throw denied;
      }
      case "above_limit" -> {
        Want above = wants.get(index(reply));
        throw above.settings().aboveLimit(above.serverPermits(), reply);
      }
      default -> {
        return granted(id, reply, retry.isUnsure());
      }
    }
  }

  private LuagateException denied(Reply reply) {
    var usages = rows(reply, "usages"); // in_use limit waiting
    for (int i = 0; i < usages.size(); i++) {
      wants.get(i).settings().checkLimit((int) number(usages.get(i), 1));
    }
    int index = index(reply);
    List<?> usage = usages.get(index);
    var fields =
        Map.<String, Object>of(
            "in_use", usage.get(0),
            "limit", usage.get(1),
            "waiting", usage.get(2),
            "next_expiry", reply.number("next_expiry"));
    return wants.get(index).settings().denied(new Reply("denied", fields, reply.instant()));
  }

  private Permits granted(String id, Reply reply, boolean isUnsure) {
    var rows = rows(reply, "permits"); // permits fence expires_at in_use limit
    for (int i = 0; i < rows.size(); i++) {
      wants.get(i).settings().checkLimit((int) number(rows.get(i), 4));
    }
    var permits = new ArrayList<Permit>();
    for (List<?> row : rows) {
      var fields =
          Map.<String, Object>of(
              "permits", row.get(0),
              "fence", row.get(1),
              "expires_at", row.get(2),
              "now", reply.number("now"));
      Settings of = wants.get(permits.size()).settings();
      var granted = new Reply("granted", fields, reply.instant());
      permits.add(new Permit(of, id, 0, (int) number(row, 4), granted, isUnsure));
    }
    return new Permits(List.copyOf(permits));
  }

  /** The want that a refusal names. */
  private int index(Reply reply) {
    int index = reply.integer("index") - 1;
    if (index < 0 || index >= wants.size()) {
      throw new UnexpectedReplyException("index", reply);
    }
    return index;
  }

  /** A row for each want. */
  private List<List<?>> rows(Reply reply, String field) {
    var rows = new ArrayList<List<?>>();
    ((List<?>) reply.fields().get(field)).forEach(row -> rows.add((List<?>) row));
    if (rows.size() != wants.size()) {
      throw new UnexpectedReplyException(field, reply);
    }
    return rows;
  }

  private static long number(List<?> row, int index) {
    return (Long) row.get(index);
  }

  /** Waits without a time limit. See {@link #acquire(Duration)}. */
  public Permits acquire() throws InterruptedException {
    return acquire(null, System.nanoTime() + Settings.UNLIMITED_NS);
  }

  /**
   * Waits in line for permits of all, one semaphore after the other: by limit, the smallest first,
   * then by key. Permits that are already held are renewed meanwhile; if one of them is lost, the
   * call throws {@link LostException}. The timeout counts for all together; see {@link
   * Semaphore#acquire(int, Duration)}. After an exception nothing stays held.
   */
  public Permits acquire(Duration timeout) throws InterruptedException {
    return acquire(timeout, Settings.deadline(timeout));
  }

  private Permits acquire(Duration timeout, long end) throws InterruptedException {
    var granted = new HashMap<Semaphore, Permit>();
    var held = new ArrayList<Permit>();
    var current = new AtomicReference<Request>();
    try {
      for (Want want : inOrder()) {
        var request = new Request(want.settings(), want.permits);
        current.set(request);
        held.forEach(Permit::checkClock); // it may have been lost between two requests
        Permit permit = request.acquire(timeout, end, false);
        held.add(permit);
        granted.put(want.semaphore, permit);
        var lost = new LostException(want.key(), permit.id());
        permit.lease.keep(true, () -> current.get().fail(lost));
      }
      for (Permit earlier : held.subList(0, held.size() - 1)) {
        earlier.confirm(timeout, end);
      }
      held.get(held.size() - 1).makePermanent(timeout, end);
      held.forEach(Permit::checkClock);
    } catch (RuntimeException | InterruptedException failed) {
      // Usually done when this returns.
      Release.await(held.stream().map(Permit::abandon).toList(), System.nanoTime());
      throw failed;
    }
    held.forEach(Permit::keep);
    return new Permits(wants.stream().map(want -> granted.get(want.semaphore)).toList());
  }

  private static int limit(Want want) {
    return want.settings().limit();
  }

  /** The order that all clients use, so that no two callers wait for each other. */
  private List<Want> inOrder() {
    var byKey =
        Comparator.comparing((Want want) -> want.key().getBytes(UTF_8), Arrays::compareUnsigned);
    return wants.stream()
        .sorted(Comparator.comparingInt(Several::limit).thenComparing(byKey))
        .toList();
  }
}
