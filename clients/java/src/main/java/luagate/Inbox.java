package luagate;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The waits of a gate, and the messages for them. All servers publish to the same channel. */
final class Inbox {
  private static final Pattern MESSAGE =
      Pattern.compile("((\\S+) (\\d{1,18}) (\\d{1,18}) (\\d{1,18}|-1) (\\d{1,18})) ([0-9a-f]{40})");

  /** The word of a message of this client, not of the server. */
  static final String ASK_AGAIN = "ask again";

  final String channel;
  private final Map<String, Request> requests = new ConcurrentHashMap<>(); // by id

  Inbox(String prefix) {
    channel = prefix + ":inbox:" + Ids.word(9);
  }

  void add(Request request) {
    requests.put(request.id, request);
  }

  void remove(Request request) {
    requests.remove(request.id);
  }

  boolean hasWaiters() {
    return !requests.isEmpty();
  }

  void receive(String text) {
    long received = Clock.nanoTime();
    Matcher words = MESSAGE.matcher(text);
    Request request = words.matches() ? requests.get(words.group(2)) : null;
    if (request == null || !words.group(7).equals(Scripts.sha1(request.secret + words.group(1)))) {
      return;
    }
    Map<String, Object> fields = new HashMap<>();
    for (String field : List.of("permits", "fence", "expires_at", "now")) {
      fields.put(field, Long.parseLong(words.group(fields.size() + 3)));
    }
    request.deliver(new Reply("message", fields, received));
  }

  /** Messages may have been lost until now, so all waiters ask again that asked before. */
  void askAgain(long now) {
    var message = new Reply(ASK_AGAIN, Map.of(), now);
    requests.values().forEach(request -> request.deliver(message));
  }

  /** Ends all waits with this exception. */
  void fail(LuagateException failure) {
    requests.values().forEach(request -> request.fail(failure));
  }
}
