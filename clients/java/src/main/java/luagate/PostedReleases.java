package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** The posted releases of a gate that are not answered yet. */
final class PostedReleases {
  /** For sending one. */
  private static final long LONGEST_NS = SECONDS.toNanos(1);

  /** A reply that no call has read for this time is read in the background. */
  private static final long UNREAD_NS = MILLISECONDS.toNanos(10);

  private static final long PERIOD_NS = MILLISECONDS.toNanos(1); // of a call that waits

  private final Luagate gate;
  private final Map<String, Set<Posted>> byKey = new ConcurrentHashMap<>();
  private final AtomicLong failures = new AtomicLong();
  private final AtomicBoolean isReading = new AtomicBoolean(); // the timer runs

  PostedReleases(Luagate gate) {
    this.gate = gate;
  }

  /**
   * Sends the release of a permit, and does not wait for the reply. It only blocks if a connection
   * must be opened first.
   */
  void post(Permit permit) {
    gate.checkOpen();
    Posted one = new Posted(permit);
    String key = one.settings.key();
    byKey.compute(
        key,
        (name, known) -> {
          Set<Posted> all = known == null ? ConcurrentHashMap.newKeySet() : known;
          all.add(one);
          return all;
        });
    gate.pending().begin();
    one.answered.thenRun(() -> end(key, one));
    boolean isInterrupted = Thread.interrupted(); // it does not prevent the release
    try {
      gate.calls().post(one, System.nanoTime() + LONGEST_NS);
      readLater();
    } catch (InterruptedException interrupt) {
      isInterrupted = true;
      one.failed(interrupt);
    } catch (Unanswered | RuntimeException failed) {
      one.failed(failed);
    }
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private void end(String key, Posted one) {
    byKey.computeIfPresent(
        key,
        (name, known) -> {
          known.remove(one);
          return known.isEmpty() ? null : known;
        });
    gate.pending().end();
  }

  /** How many have failed until now: each may run after a call that was sent behind it. */
  long failures() {
    return failures.get();
  }

  void countFailure() {
    failures.incrementAndGet();
  }

  boolean isEmpty() {
    return byKey.isEmpty();
  }

  /** Those of this name. */
  Set<Posted> of(String key) {
    return byKey.getOrDefault(key, Set.of());
  }

  /**
   * Waits for the releases of these names that are repeated. Returns false if they are not answered
   * by this instant. The caller holds no connection: the repetition needs one.
   */
  boolean awaitRepeated(List<String> names, long end) throws InterruptedException {
    for (String name : names) {
      for (Posted one : of(name)) {
        if (one.isRepeated() && !await(one, one.on(), end)) {
          return false;
        }
      }
    }
    return true;
  }

  /**
   * Waits for the releases of these names that were sent on other connections than this one. Returns
   * false if one of them has failed, or is not answered by this instant. A block that has not sent
   * its release has not ended: nobody waits for it, since it may itself wait for a connection.
   */
  boolean await(List<String> names, Link link, long end) throws InterruptedException, Unanswered {
    for (String name : names) {
      for (Posted one : of(name)) {
        Link on = one.on();
        if (on == link || on == null && !one.isRepeated()) {
          continue;
        }
        link.readPosted(); // another call may wait for these while this one waits
        if (on == null || !await(one, on, end)) {
          return false;
        }
      }
    }
    return true;
  }

  private boolean await(Posted one, Link on, long end) throws InterruptedException {
    while (!one.answered.isDone()) {
      if (one.on() != on || System.nanoTime() - end >= 0) {
        return false;
      }
      gate.servers().readPosted(0);
      try {
        one.answered.get(PERIOD_NS, NANOSECONDS);
      } catch (TimeoutException silent) {
        // The thread that sends it may not have given back the connection before.
      } catch (ExecutionException impossible) {
        throw new IllegalStateException(impossible);
      }
    }
    return true;
  }

  private void readLater() {
    if (isReading.compareAndSet(false, true)) {
      gate.background().after(UNREAD_NS, this::read);
    }
  }

  private void read() {
    isReading.set(false);
    gate.servers().readPosted(UNREAD_NS);
    if (!byKey.isEmpty()) {
      readLater();
    }
  }
}
