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
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import luagate.Scripts.Reply;
import redis.clients.jedis.exceptions.JedisException;

/** Grants permits of several semaphores, all or none. */
public final class Several {
  private static final int MOST_SEMAPHORES = 64;

  /** A number of permits of one semaphore. */
  public record Want(Semaphore semaphore, int permits) {
    public Want {
      Settings.check(permits >= 1, "permits", permits, "an integer from 1 on");
    }

    private Settings settings() {
      return semaphore.settings;
    }

    private String key() {
      return semaphore.settings.key();
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
      if (want.settings().gate() != gate) {
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
   * group, as in {@code {x}:a} and {@code {x}:b}. Ignores {@link Semaphore#headStart}.
   */
  public Optional<Permits> tryAcquire() {
    String tags =
        wants.stream()
            .map(want -> want.settings().tag())
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
      abandon(id);
      throw failed;
    }
  }

  private void abandon(String id) {
    wants.forEach(want -> new Request(want.settings(), want.permits, id).abandon());
  }

  private Optional<Permits> tryAcquire(String id) {
    var keys = wants.stream().flatMap(want -> want.settings().keys().stream()).toList();
    var argv = new ArrayList<>(List.of(id));
    for (Want want : wants) {
      Settings of = want.settings();
      var terms = LongStream.of(want.permits, of.limit(), of.leaseMs(), of.atLeast().toMillis());
      terms.mapToObj(Long::toString).forEach(argv::add);
    }
    Reply reply = gate.scripts.callWith("semaphore/try_acquire_several", keys, argv);
    if (reply.word().equals("denied")) {
      if (reply.number("still_held") > 0) { // by an earlier run of this call, whose reply was lost
        abandon(id);
      }
      return Optional.empty();
    }
    if (reply.word().equals("above_limit")) {
      Want above = wants.get((int) reply.number("index") - 1);
      throw Request.aboveLimit(above.settings(), above.permits, reply);
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
      Settings of = wants.get(permits.size()).settings();
      permits.add(new Permit(of, id, 0, new Reply("granted", fields, reply.instant())));
    }
    return Optional.of(new Permits(permits));
  }

  /**
   * Waits in line for permits of all, one semaphore after the other: by limit, the smallest first,
   * then by key. Permits that are already held are renewed meanwhile; if one of them is lost, the
   * call throws {@link LostException}. After an exception nothing stays held.
   */
  public Permits acquire(Duration timeout) throws InterruptedException, TimeoutException {
    long end = System.nanoTime() + timeout.toNanos();
    var granted = new HashMap<Semaphore, Permit>();
    var held = new ArrayList<Permit>();
    var current = new AtomicReference<Request>();
    try {
      for (Want want : inOrder()) {
        var request = new Request(want.settings(), want.permits);
        current.set(request);
        Permit permit = request.acquire(timeout, end);
        held.add(permit);
        granted.put(want.semaphore, permit);
        var lost = new LostException(want.key(), permit.id());
        permit.lease.onLost(() -> current.get().fail(lost));
        permit.lease.renew(true);
      }
      held.subList(0, held.size() - 1).forEach(Permit::refresh);
      for (Permit permit : held) {
        if (permit.isLost()) {
          throw new LostException(permit.settings.key(), permit.id());
        }
      }
    } catch (Exception failed) {
      try {
        new Permits(held).release();
      } catch (JedisException unreachable) {
        failed.addSuppressed(unreachable); // the permits end with their leases
      }
      throw failed;
    }
    held.forEach(Permit::keep);
    return new Permits(wants.stream().map(want -> granted.get(want.semaphore)).toList());
  }

  /** The order that all clients use, so that no two callers wait for each other. */
  private List<Want> inOrder() {
    var byKey =
        Comparator.comparing((Want want) -> want.key().getBytes(UTF_8), Arrays::compareUnsigned);
    return wants.stream()
        .sorted(Comparator.comparingInt((Want want) -> want.settings().limit()).thenComparing(byKey))
        .toList();
  }
}
