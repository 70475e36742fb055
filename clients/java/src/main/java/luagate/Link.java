package luagate;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/**
 * A connection, and the releases that were posted on it and are not answered yet. One thread at a
 * time uses it.
 */
final class Link {
  /** A post beyond this number waits for the replies to the earlier ones. */
  private static final int MOST_POSTED = 16;

  final Node node;
  final Library.Connection connection;
  long since; // when it was last used
  boolean isBroken; // closed, or an answer is missing that may still come
  private final Deque<Posted> posted = new ArrayDeque<>();

  Link(Node node, Library.Connection connection) {
    this.node = node;
    this.connection = connection;
  }

  /** Sends a command, and reads the replies until that of this command. */
  Object execute(String command, List<byte[]> words) throws Unanswered, InterruptedException {
    connection.send(command, words);
    readPosted();
    return receive();
  }

  /** Sends commands at once. Returns the reply to each, or its {@link ErrorReply}. */
  List<Object> executeAll(String command, List<List<byte[]>> all)
      throws Unanswered, InterruptedException {
    for (List<byte[]> words : all) {
      connection.send(command, words);
    }
    readPosted();
    var replies = new ArrayList<Object>();
    for (int i = 0; i < all.size(); i++) {
      try {
        replies.add(receive());
      } catch (ErrorReply refused) {
        replies.add(refused);
      }
    }
    return replies;
  }

  private Object receive() throws Unanswered, InterruptedException {
    isBroken = true;
    try {
      Object reply = connection.receive();
      isBroken = false;
      return reply;
    } catch (ErrorReply refused) {
      isBroken = false;
      throw refused;
    }
  }

  /** Sends a release, and leaves its reply to a later call. */
  void post(String command, List<byte[]> words, Posted one)
      throws Unanswered, InterruptedException {
    if (posted.size() >= MOST_POSTED) {
      readPosted();
    }
    posted.add(one);
    connection.send(command, words);
    connection.flush();
  }

  boolean hasPosted() {
    return !posted.isEmpty();
  }

  /** Reads the replies to the posted releases. */
  void readPosted() throws Unanswered, InterruptedException {
    while (!posted.isEmpty()) {
      Object reply;
      try {
        reply = receive();
      } catch (ErrorReply refused) {
        posted.remove().failed(refused);
        continue;
      }
      try {
        posted.remove().replied(reply);
      } catch (UnexpectedReplyException unexpected) { // the next reply may belong to this release
        throw new Unanswered(unexpected.getMessage(), unexpected, false);
      }
    }
  }

  /** Closes the connection. The releases without a reply are repeated. */
  void close() {
    connection.close();
    while (!posted.isEmpty()) {
      posted.remove().failed(new Unanswered("the connection ended before the reply", null, false));
    }
  }
}
