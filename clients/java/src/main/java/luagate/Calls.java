package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeoutException;

/** Runs scripts: one attempt, or repeated until the server answers. */
final class Calls {
  /**
   * A reply of the server, as it came and as it is read, and how many posted releases had failed
   * when the call was sent.
   */
  private record Answer(Object reply, Reply read, long failures) {}

  /** The order of a call and of the posted releases of its names. */
  private enum Order {
    /** It runs after them. */
    AFTER,
    /** The same, and its reply is not read. */
    AFTER_UNREAD,
    /** It may run before them. */
    ANY
  }

  /** A call of a script. Keys and arguments are texts, numbers or bytes. */
  private record Call(String name, List<?> keys, List<?> argv, Order order) {
    Call(String name, List<?> keys, List<?> argv) {
      this(name, keys, argv, Order.AFTER);
    }

    static Call of(CallQueue.Call own) {
      return new Call(own.script(), own.keys(), own.arguments(), Order.ANY);
    }

    /** The names whose posted releases it runs after. */
    List<String> names() {
      return order == Order.ANY ? List.of() : keys.stream().map(Calls::text).toList();
    }

    /** The words after EVAL or EVALSHA. */
    List<byte[]> words(String script) {
      var words = new ArrayList<Object>(List.of(script, keys.size()));
      words.addAll(keys);
      words.addAll(argv);
      return bytes(words);
    }

    String key() {
      return keys.isEmpty() ? "" : text(keys.get(0));
    }
  }

  private static String text(Object key) {
    return key instanceof byte[] bytes ? new String(bytes, UTF_8) : key.toString();
  }

  /** Texts, numbers or bytes as bytes. */
  static List<byte[]> bytes(List<?> words) {
    return words.stream()
        .map(word -> word instanceof byte[] bytes ? bytes : word.toString().getBytes(UTF_8))
        .toList();
  }

  /** A reply with texts instead of bytes. */
  static Object texts(Object reply) {
    if (reply instanceof List<?> list) {
      var texts = new ArrayList<Object>(list.size()); // with nulls
      list.forEach(value -> texts.add(texts(value)));
      return texts;
    }
    return reply instanceof byte[] ? text(reply) : reply;
  }

  final Scripts scripts;
  private final Luagate gate;
  private final Servers servers;

  Calls(Luagate gate, Scripts scripts, Servers servers) {
    this.gate = gate;
    this.scripts = scripts;
    this.servers = servers;
  }

  /**
   * Repeats a call that has no deadline of its own until the server answers, at most for the call
   * timeout. An interrupt does not end it, and stays set.
   *
   * @param isKnown whether the server may know the id already
   */
  Reply call(String name, List<String> keys, List<?> argv, boolean isKnown) {
    return call(name, keys, argv, new Retry(keys.get(0), gate.callTimeoutNs(), isKnown));
  }

  /** The same, as {@code retry} says. */
  Reply call(String name, List<String> keys, List<?> argv, Retry retry) {
    return answer(new Call(name, keys, argv), retry).read();
  }

  /**
   * The same, for a call that a late release would change. If it is denied, and a posted release has
   * failed since it was sent, it is made once more: that release may have run after it.
   */
  Reply callOnceMore(String name, List<String> keys, List<?> argv, Retry retry) {
    var call = new Call(name, keys, argv);
    Answer answer = answer(call, retry);
    boolean isLate = gate.posted().failures() != answer.failures;
    boolean isDoubtful = isLate && answer.read.word().equals("denied");
    return isDoubtful ? answer(call, retry).read : answer.read;
  }

  /** As {@link #call}, with keys and arguments of any bytes. Returns the reply as it came. */
  Object run(String name, List<byte[]> keys, List<byte[]> argv) {
    var call = new Call(name, keys, argv, Order.AFTER_UNREAD);
    return answer(call, new Retry(name, gate.callTimeoutNs(), false)).reply();
  }

  private Answer answer(Call call, Retry retry) {
    boolean isInterrupted = Thread.interrupted();
    try {
      while (true) {
        try {
          return repeat(call, retry, false);
        } catch (InterruptedException interrupt) {
          isInterrupted = true;
        }
      }
    } finally {
      if (isInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Repeats a call as {@code retry} says. An interrupt ends it. */
  Reply repeat(String name, List<String> keys, List<?> argv, Retry retry)
      throws InterruptedException {
    return repeat(new Call(name, keys, argv), retry, true).read();
  }

  private Answer repeat(Call call, Retry retry, boolean isInterruptible)
      throws InterruptedException {
    while (true) {
      gate.checkOpen();
      try {
        Answer answer = attempt(call, retry.attemptEnd(), isInterruptible);
        retry.answered();
        return answer;
      } catch (Unanswered lost) {
        gate.pause(retry.pause(lost));
      }
    }
  }

  /** Makes one attempt, which ends by this instant, or by an interrupt. */
  Reply attempt(String name, List<String> keys, List<?> argv, long end)
      throws InterruptedException, Unanswered {
    return attempt(new Call(name, keys, argv), end, true).read();
  }

  /** Makes one attempt in the background, also before posted releases. It ends by this instant. */
  Reply attemptOwn(CallQueue.Call one, long end) throws InterruptedException, Unanswered {
    return attempt(Call.of(one), end, false).read();
  }

  /**
   * The same for several calls at once, on the connection of the first one. Returns the reply to
   * each; null: it was refused.
   */
  List<Reply> attemptOwn(List<CallQueue.Call> all, long end)
      throws InterruptedException, Unanswered {
    var calls = all.stream().map(Call::of).toList();
    var words = calls.stream().map(one -> one.words(scripts.script(one.name).sha1())).toList();
    Node.Work<List<Reply>> work =
        to -> {
          long instant = Clock.nanoTime();
          var replies = new ArrayList<Reply>();
          for (Object reply : to.executeAll("EVALSHA", words)) {
            String name = calls.get(replies.size()).name;
            replies.add(reply instanceof ErrorReply ? null : read(name, reply, instant));
          }
          return replies;
        };
    return servers.node(calls.get(0).key()).call(List.of(), work, end, false);
  }

  /** Sends a release by this instant, and leaves the reply to a later call. */
  void post(Posted one, long end) throws InterruptedException, Unanswered {
    var call = new Call(Posted.SCRIPT, one.settings.keys(), one.arguments());
    Node node = servers.node(call.key());
    Node.Work<Void> post =
        to -> {
          one.isOn(to);
          if (node.knowsRelease) {
            to.post("EVALSHA", call.words(scripts.script(call.name).sha1()), one);
          } else { // it must not be refused
            to.post("EVAL", call.words(scripts.text(call.name)), one);
          }
          return null;
        };
    node.call(List.of(call.key()), post, end, false);
  }

  /**
   * Reads a reply to a call that was sent after this instant. Throws an UnexpectedReplyException:
   * then the connection must be closed, since the next reply may belong to this call.
   */
  Reply read(String name, Object reply, long instant) {
    return scripts.script(name).reply(texts(reply), instant);
  }

  private Answer attempt(Call call, long end, boolean isInterruptible)
      throws InterruptedException, Unanswered {
    try {
      return evaluate(servers.node(call.key()), call, end, isInterruptible, false);
    } catch (ErrorReply refused) {
      if (servers.isCluster() && refused.is("ASK")) {
        return ask(call, refused, end, isInterruptible);
      }
      if (servers.isCluster() && refused.is("MOVED")) {
        servers.renew();
        throw new Unanswered(refused.getMessage(), refused.ofLibrary(), false);
      }
      throw explained(call.name, refused);
    } catch (Unanswered lost) {
      servers.renew();
      throw lost;
    }
  }

  /** Makes the call at the server that {@code ASK <slot> <address>} names. */
  private Answer ask(Call call, ErrorReply moving, long end, boolean isInterruptible)
      throws InterruptedException, Unanswered {
    Node target = servers.nodeAt(moving.getMessage().split(" ")[2]);
    try {
      return evaluate(target, call, end, isInterruptible, true);
    } catch (ErrorReply refused) {
      throw explained(call.name, refused);
    }
  }

  /** What a program gets if the server refuses this script. */
  RuntimeException explained(String name, ErrorReply refused) {
    return NoPermissionException.is(refused)
        ? NoPermissionException.of(refused, gate.prefix(), scripts.text(name))
        : refused.ofLibrary();
  }

  private Answer evaluate(Node node, Call call, long end, boolean isInterruptible, boolean isAsking)
      throws InterruptedException, Unanswered {
    var words = call.words(scripts.script(call.name).sha1());
    List<String> names = gate.posted().isEmpty() ? List.of() : call.names();
    Node.Work<Answer> first =
        to ->
            gate.posted().await(names, to, end)
                ? send(to, call, "EVALSHA", words, isAsking)
                : null;
    try {
      while (gate.posted().awaitRepeated(names, end)) {
        Answer answer = node.call(names, first, end, isInterruptible);
        if (answer != null) {
          return answer;
        }
        if (System.nanoTime() - end >= 0) {
          break;
        }
      }
      throw new Unanswered("an earlier release is not confirmed", null, false);
    } catch (ErrorReply refused) {
      if (!refused.is("NOSCRIPT")) {
        throw refused;
      }
      // The text is long. To send it can block, so this thread does not do it.
      var whole = call.words(scripts.text(call.name)); // the server stores it
      Node.Work<Answer> work = to -> send(to, call, "EVAL", whole, isAsking);
      var sending = new FutureTask<>(() -> node.call(names, work, end, isInterruptible));
      gate.background().run(sending);
      return await(sending, end);
    }
  }

  private Answer send(Link to, Call call, String command, List<byte[]> words, boolean isAsking)
      throws Unanswered, InterruptedException {
    if (isAsking) {
      to.execute("ASKING", List.of());
    }
    long instant = Clock.nanoTime();
    long failures = gate.posted().failures();
    Object reply = to.execute(command, words);
    boolean isUnread = call.order == Order.AFTER_UNREAD;
    return new Answer(reply, isUnread ? null : read(call.name, reply, instant), failures);
  }

  private static Answer await(FutureTask<Answer> task, long end)
      throws InterruptedException, Unanswered {
    try {
      return task.get(end - System.nanoTime(), NANOSECONDS);
    } catch (TimeoutException silent) {
      throw new Unanswered("no reply in time", null, false);
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof RuntimeException refused) {
        throw refused;
      }
      if (failed.getCause() instanceof InterruptedException) {
        throw new ClosedException(); // only `close` interrupts the thread
      }
      throw (Unanswered) failed.getCause();
    }
  }
}
