package luagate;

import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;

/**
 * Makes the renewals and releases of one server in the background: a few at a time, and those that
 * wait meanwhile together, since a round trip can take long. Each server has its own queue, so one
 * that does not answer holds up no call to another one.
 */
final class CallQueue {
  /** A renewal or a release. */
  interface Call {
    /** Whether it is still necessary. */
    boolean isWanted();

    String script();

    List<String> keys();

    List<?> arguments();

    /** The server has answered. Throws nothing but what the reply means. */
    void answered(Reply reply);

    /** This attempt has failed, or the gate was closed. */
    void failed(Exception failure);
  }

  private static final int MOST_THREADS = 4;
  private static final int MOST_TOGETHER = 64;
  private static final long LONGEST_ATTEMPT_NS = SECONDS.toNanos(1);

  private final Luagate gate;
  private final Queue<Call> waiting = new ArrayDeque<>();
  private int threads;

  CallQueue(Luagate gate) {
    this.gate = gate;
  }

  synchronized void add(Call call) {
    waiting.add(call);
    if (threads < MOST_THREADS) {
      threads++;
      gate.background().run(this::work);
    }
  }

  private void work() {
    for (List<Call> calls = next(); !calls.isEmpty(); calls = next()) {
      try {
        make(calls.stream().filter(Call::isWanted).toList());
      } catch (RuntimeException | Error failed) { // the next calls are made all the same
        Thread current = Thread.currentThread();
        current.getUncaughtExceptionHandler().uncaughtException(current, failed);
      }
    }
  }

  /** The next calls; none: the thread ends. */
  private synchronized List<Call> next() {
    var calls = new ArrayList<Call>();
    while (!gate.background().isClosed() && !waiting.isEmpty() && calls.size() < MOST_TOGETHER) {
      calls.add(waiting.poll());
    }
    if (calls.isEmpty()) {
      threads--;
    }
    return calls;
  }

  private void make(List<Call> calls) {
    if (calls.size() < 2) {
      calls.forEach(this::makeAlone);
      return;
    }
    List<Reply> replies;
    try {
      replies = gate.calls().attemptOwn(calls, System.nanoTime() + LONGEST_ATTEMPT_NS);
    } catch (Unanswered | RuntimeException | InterruptedException failed) {
      calls.forEach(call -> call.failed(failed));
      return;
    }
    var refused = new ArrayList<Call>();
    for (int i = 0; i < calls.size(); i++) {
      if (replies.get(i) == null) {
        refused.add(calls.get(i));
      } else {
        calls.get(i).answered(replies.get(i));
      }
    }
    if (!refused.isEmpty()) {
      // One alone can load the script, or find the new server of a slot. Then the others succeed.
      Exception failure = makeAlone(refused.get(0));
      for (Call other : refused.subList(1, refused.size())) {
        if (failure == null) {
          gate.servers().run(other); // on the queue of its server by now
        } else {
          other.failed(failure);
        }
      }
    }
  }

  /** Returns what it failed with, or null. */
  private Exception makeAlone(Call call) {
    Reply reply;
    try {
      reply = gate.calls().attemptOwn(call, System.nanoTime() + LONGEST_ATTEMPT_NS);
    } catch (Unanswered | RuntimeException | InterruptedException failed) {
      call.failed(failed);
      return failed;
    }
    call.answered(reply);
    return null;
  }
}
