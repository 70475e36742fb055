package luagate;

import java.util.ArrayDeque;
import java.util.Deque;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisDataException;

/**
 * A connection, and the releases that were posted on it and are not answered yet. One thread at a
 * time uses it.
 */
final class Link {
  /** A post beyond this number waits for the replies to the earlier ones. */
  private static final int MOST_POSTED = 16;

  final Node node;
  final Connection connection;
  long since; // when it was last used
  private final Deque<Posted> posted = new ArrayDeque<>();

  Link(Node node, Connection connection) {
    this.node = node;
    this.connection = connection;
  }

  /** Sends a command, and reads the replies until that of this command. */
  Object execute(CommandArguments command) {
    if (posted.isEmpty()) {
      return connection.executeCommand(command);
    }
    connection.sendCommand(command);
    readPosted();
    return connection.getOne();
  }

  /** Sends a release, and leaves its reply to a later call. */
  void post(CommandArguments release, Posted one) {
    if (posted.size() >= MOST_POSTED) {
      readPosted();
    }
    posted.add(one);
    connection.sendCommand(release);
    connection.getMany(0); // Jedis has no other public method that only sends what it has buffered
  }

  boolean hasPosted() {
    return !posted.isEmpty();
  }

  /** Reads the replies to the posted releases. */
  void readPosted() {
    while (!posted.isEmpty()) {
      Object reply;
      try {
        reply = connection.getOne();
      } catch (JedisDataException refused) {
        posted.remove().failed(refused);
        continue;
      }
      posted.remove().replied(reply);
    }
  }

  /** Closes the connection. The releases without a reply are repeated. */
  void close() {
    Node.close(connection);
    while (!posted.isEmpty()) {
      posted.remove().failed(new Unanswered("the connection ended before the reply", null, false));
    }
  }
}
