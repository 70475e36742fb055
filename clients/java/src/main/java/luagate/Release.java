package luagate;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;

/**
 * Releases what an id has in the background, until the server answers, or has freed the id by
 * itself.
 */
final class Release implements CallQueue.Call {
  private static final long LONGEST_AWAITED_NS = SECONDS.toNanos(1);
  private static final long FIRST_PAUSE_NS = MILLISECONDS.toNanos(20);
  private static final long LONGEST_PAUSE_NS = SECONDS.toNanos(1);

  /** From the release of an id to a second one, if a call of it may reach the server late. */
  private static final long LATE_NS = SECONDS.toNanos(1);

  private static final long RELEASING_NS = MILLISECONDS.toNanos(20);

  private final Settings settings;
  private final String id;
  private final long end;
  private final CompletableFuture<Void> answered = new CompletableFuture<>();
  private int attempts;

  private Release(Settings settings, String id, long end) {
    this.settings = settings;
    this.id = id;
    this.end = end;
  }

  /**
   * Starts it. The server frees the id by itself after {@code lastsNs}. Returns what is done when
   * it has ended.
   */
  static CompletableFuture<Void> start(Settings settings, String id, long lastsNs) {
    settings.gate().pending().begin();
    long end = System.nanoTime() + Math.min(lastsNs, Settings.UNLIMITED_NS);
    var release = new Release(settings, id, end);
    settings.gate().servers().run(release);
    return release.answered;
  }

  /** As {@link #start}, and releases the id again later, if a call of it was not answered. */
  static CompletableFuture<Void> start(Settings settings, String id, long lastsNs, Retry of) {
    var answered = start(settings, id, lastsNs);
    if (of.isUnsure()) {
      answered.thenRun(() -> again(settings, id, lastsNs));
    }
    return answered;
  }

  /** Releases an id a second time, later: a call of it that was not answered may arrive late. */
  static void again(Settings settings, String id, long lastsNs) {
    settings.gate().background().after(LATE_NS, () -> start(settings, id, lastsNs));
  }

  /**
   * Waits for releases that were started, a moment and at most until {@code until}. Those that are
   * not answered continue.
   */
  static void await(List<CompletableFuture<Void>> started, long until) {
    long ns = Math.max(RELEASING_NS, Math.min(until - System.nanoTime(), LONGEST_AWAITED_NS));
    try {
      CompletableFuture.allOf(started.toArray(CompletableFuture<?>[]::new)).get(ns, NANOSECONDS);
    } catch (TimeoutException | ExecutionException silent) {
      // They continue.
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public boolean isWanted() {
    return true;
  }

  @Override
  public String script() {
    return "semaphore/release";
  }

  @Override
  public List<String> keys() {
    return settings.keys();
  }

  @Override
  public List<?> arguments() {
    return List.of(id, 0);
  }

  @Override
  public void answered(Reply reply) {
    answered.complete(null);
    settings.gate().pending().end();
  }

  /** It is repeated: what is refused now may stay held for long. */
  @Override
  public void failed(Exception failure) {
    boolean isInterrupted = failure instanceof InterruptedException; // only `close` does it
    boolean isClosed = isInterrupted || failure instanceof ClosedException;
    if (!isClosed && System.nanoTime() - end < 0) {
      long pause = Math.min(FIRST_PAUSE_NS << Math.min(attempts++, 10), LONGEST_PAUSE_NS);
      settings.gate().servers().runAfter(pause, this);
      return;
    }
    if (!isInterrupted) {
      settings.gate().warn(settings.key() + ": the id " + id + " could not be released", failure);
    }
    answered(null);
  }
}
