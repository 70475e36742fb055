package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;

/** The servers of a client: one, the master that sentinels name, or the masters of a cluster. */
final class Servers {
  private final Luagate gate;
  private final Library library;
  private final Map<Library.Server, Node> nodes = new ConcurrentHashMap<>();
  private final CallQueue unknown; // for calls whose server is not known
  private final AtomicBoolean isRenewing = new AtomicBoolean();

  Servers(Luagate gate, Object client) {
    this.gate = gate;
    unknown = new CallQueue(gate);
    library = Library.of(client);
  }

  boolean isCluster() {
    return library.isCluster();
  }

  /** The server of a key. */
  Node node(String key) throws Unanswered {
    Library.Server server = library.serverOf(key);
    if (server == null) {
      renew();
      throw new Unanswered("no node of the cluster has the slot of " + key, null, false);
    }
    return node(server);
  }

  /** The server at this address of a cluster, as {@code host:port}. */
  Node nodeAt(String address) throws Unanswered {
    Library.Server server = library.serverAt(address);
    if (server == null) {
      renew();
      throw new Unanswered("the cluster has moved the slot to " + address, null, false);
    }
    return node(server);
  }

  private Node node(Library.Server server) {
    Node known = nodes.get(server);
    if (known != null) {
      return known;
    }
    nodes.values().stream().filter(Node::isGone).forEach(this::remove);
    return nodes.computeIfAbsent(server, added -> new Node(gate, added));
  }

  private void remove(Node gone) {
    nodes.values().remove(gone);
    gone.close();
  }

  /** Makes a renewal or a release in the background, on a thread for its server. */
  void run(CallQueue.Call call) {
    try {
      node(call.keys().get(0)).queue.add(call);
    } catch (Unanswered noServer) {
      unknown.add(call);
    }
  }

  /** As {@link #run}, later. */
  Future<?> runAfter(long pauseNs, CallQueue.Call call) {
    return gate.background().after(pauseNs, () -> run(call));
  }

  /** Asks the cluster in the background which node has which slot. */
  void renew() {
    if (isCluster() && isRenewing.compareAndSet(false, true)) {
      gate.background().run(this::renewNow);
    }
  }

  private void renewNow() {
    try {
      library.renew();
    } catch (RuntimeException unreachable) {
      // The next call that fails asks again.
    } finally {
      isRenewing.set(false);
    }
  }

  /** See {@link Node#readPosted}. */
  void readPosted(long unreadNs) {
    nodes.values().forEach(node -> node.readPosted(unreadNs));
  }

  void endWaits() {
    nodes.values().forEach(Node::endWaits);
  }

  /** Closes all connections. Waits for the threads that read messages until this instant. */
  void close(long end) throws InterruptedException {
    nodes.values().forEach(Node::close);
    for (Node node : nodes.values()) {
      Thread reader = node.subscription.thread();
      if (reader != null) {
        NANOSECONDS.timedJoin(reader, Math.max(1, end - System.nanoTime()));
      }
    }
  }
}
