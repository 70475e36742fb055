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
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import luagate.Scripts.Reply;
import redis.clients.jedis.exceptions.JedisException;

/** Grants permits of several semaphores, all or none. */
public final class Several {
  private static final int MOST_SEMAPHORES = 64;

  /** A number of permits of one semaphore. */
  public record Want(Semaphore semaphore, int permits) {
    private String key() {
      return semaphore.keys.get(0);
    }
  }

  private final Luagate gate;
  private final List<Want> wants;

  Several(Luagate gate, List<Want> wants) {
    if (wants.isEmpty() || wants.size() > MOST_SEMAPHORES) {
      throw new IllegalArgumentException(
          "several: got " + wants.size() + " semaphores. Accepted: 1 to " + MOST_SEMAPHORES);
    }
    var keys = new HashSet<String>();
    for (Want want : wants) {
      if (!keys.add(want.key())) {
        throw new IllegalArgumentException(
            ("several: got %s twice. Accepted: each semaphore once."
                    + " Ask for more permits of it instead")
                .formatted(want.key()));
      }
      if (want.semaphore.gate != gate) {
        throw new IllegalArgumentException(
            "several: got a semaphore of another Luagate."
                + " Accepted: semaphores of the same Luagate");
      }
    }
    this.gate = gate;
    this.wants = wants;
  }

  /**
   * Returns permits of all at once, if they are free and no caller waits. The names must share a
   * group, as in {@code {x}:a} and {@code {x}:b}.
   */
  public Optional<Permits> tryAcquire() {
    String tags =
        wants.stream()
            .map(want -> want.key().replaceAll("^[^{]*\\{([^}]*)\\}.*$", "$1"))
            .distinct()
            .collect(Collectors.joining(", "));
    if (tags.contains(", ")) {
      throw new IllegalArgumentException(
          ("tryAcquire: got the hash tags %s."
                  + " Accepted: names with one hash tag, as {x}:a and {x}:b."
                  + " For other names, call acquire")
              .formatted(tags));
    }
    String id = UUID.randomUUID().toString();
    try {
      return tryAcquire(id);
    } catch (RuntimeException failed) {
      wants.forEach(want -> want.semaphore.abandon(id));
      throw failed;
    }
  }

  private Optional<Permits> tryAcquire(String id) {
    var keys = wants.stream().flatMap(want -> want.semaphore.keys.stream()).toList();
    var argv = new ArrayList<>(List.of(id));
    for (Want want : wants) {
      Semaphore of = want.semaphore;
      for (long number : new long[] {want.permits, of.limit, of.leaseMs, of.atLeastMs}) {
        argv.add(Long.toString(number));
      }
    }
    Reply reply = gate.scripts.callWith("semaphore/try_acquire_all", keys, argv);
    if (reply.word().equals("denied")) {
      return Optional.empty();
    }
    if (reply.word().equals("above_limit")) {
      Want above = wants.get((int) reply.number("index") - 1);
      throw above.semaphore.aboveLimit(above.permits, reply);
    }
    var permits = new ArrayList<Permit>();
    for (Object row : (List<?>) reply.fields().get("permits")) {
      var granted = (List<?>) row; // permits fence expires_at in_use limit
      var fields =
          Map.<String, Object>of(
              "permits", granted.get(0),
              "fence", granted.get(1),
              "expires_at", granted.get(2),
              "now", reply.number("now"));
      Semaphore of = wants.get(permits.size()).semaphore;
      permits.add(new Permit(of, id, 0, new Reply("granted", fields, reply.instant())));
    }
    return Optional.of(new Permits(permits));
  }

  /**
   * Waits in line for permits of all, one semaphore after the other: by limit, the smallest first,
   * then by key. Permits that are already held are refreshed meanwhile; if one of them is lost, the
   * call throws {@link Permit.LostException}. After an exception nothing stays held.
   */
  public Permits acquire(Duration timeout) throws InterruptedException, TimeoutException {
    long end = System.nanoTime() + timeout.toNanos();
    var granted = new HashMap<Semaphore, Permit>();
    var held = new ArrayList<Permit>();
    try {
      for (Want want : inOrder()) {
        Semaphore of = want.semaphore;
        held.add(of.acquire(new Permits(held), want.permits, timeout, end));
        granted.put(of, held.get(held.size() - 1));
      }
      held.subList(0, held.size() - 1).forEach(Permit::refresh);
      var permits = new Permits(wants.stream().map(want -> granted.get(want.semaphore)).toList());
      if (permits.isLost()) {
        throw new Permit.LostException(
            wants.stream().map(Want::key).collect(Collectors.joining(", ")));
      }
      return permits;
    } catch (Exception failed) {
      try {
        new Permits(held).release();
      } catch (JedisException unreachable) {
        failed.addSuppressed(unreachable); // the permits end with their leases
      }
      throw failed;
    }
  }

  /** The order that all clients use, so that no two callers wait for each other. */
  private List<Want> inOrder() {
    var byKey =
        Comparator.comparing((Want want) -> want.key().getBytes(UTF_8), Arrays::compareUnsigned);
    return wants.stream()
        .sorted(Comparator.comparingInt((Want want) -> want.semaphore.limit).thenComparing(byKey))
        .toList();
  }
}
