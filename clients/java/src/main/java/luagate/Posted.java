package luagate;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The release at the end of a block: it is sent, and the reply is read later. If the reply says that
 * the permit was lost, this is reported. Without a reply, the release is repeated in the background.
 */
final class Posted {
  static final String SCRIPT = "semaphore/release";

  final Settings settings;
  final String id;
  final CompletableFuture<Void> answered = new CompletableFuture<>();
  private final Permit permit; // its notice of a loss needs it
  private final boolean wasHeld;
  private final long lastsNs;
  private final AtomicBoolean hasFailed = new AtomicBoolean();
  private volatile boolean isRefused; // for longer than calls can wait
  private volatile Link on; // the calls behind it on this connection run after it; null: none

  Posted(Permit permit) {
    this.permit = permit;
    settings = permit.settings;
    id = permit.id();
    lastsNs = permit.lease.longestNs();
    wasHeld = permit.lease.finish();
  }

  /** Whether it is repeated in the background, and may soon be answered. */
  boolean isRepeated() {
    return hasFailed.get() && !isRefused;
  }

  List<Object> arguments() {
    return List.of(id, 0);
  }

  Link on() {
    return on;
  }

  void isOn(Link link) {
    on = link;
  }

  /** Takes the reply. Throws an UnexpectedReplyException. */
  void replied(Object reply) {
    Reply read;
    try {
      read = settings.gate().calls().read(SCRIPT, reply, 0);
    } catch (UnexpectedReplyException unexpected) {
      failed(unexpected);
      throw unexpected;
    }
    if (on != null) {
      on.node.knowsRelease = true;
    }
    if (read.word().equals("gone") && wasHeld) {
      permit.lease.reportLoss();
    }
    permit.releaseAgain();
    answered.complete(null);
  }

  /** Repeats it in the background, unless that is done already. */
  void failed(Exception failure) {
    if (!hasFailed.compareAndSet(false, true)) {
      return;
    }
    Link link = on;
    if (link != null) {
      link.node.knowsRelease = false;
    }
    on = null;
    settings.gate().posted().countFailure();
    boolean isUnknown = failure instanceof ErrorReply refused && refused.is("NOSCRIPT");
    if (!isUnknown) { // otherwise the text of the script is sent
      isRefused = failure instanceof ErrorReply refused && !ServerError.of(refused).isPassing();
      log(failure);
    }
    if (settings.gate().isClosed()) {
      answered.complete(null);
      return;
    }
    Release.start(settings, id, lastsNs)
        .thenRun(
            () -> {
              permit.releaseAgain();
              answered.complete(null);
            });
  }

  private void log(Exception failure) {
    Exception shown =
        failure instanceof ErrorReply refused
            ? settings.gate().calls().explained(SCRIPT, refused)
            : failure;
    String text = settings.key() + ": the release of the id " + id + " failed";
    String then = settings.gate().isClosed() ? "" : ". It is repeated in the background";
    settings.gate().warn(text + then, shown);
  }
}
