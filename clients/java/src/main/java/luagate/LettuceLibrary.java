package luagate;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.ConnectionFuture;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.protocol.DefaultEndpoint;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.RedisPubSubListener;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.netty.channel.Channel;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Lettuce. The connections share the threads of the program's client, but not its option to
 * reconnect: a command must not be sent again without the knowledge of its caller.
 */
final class LettuceLibrary implements Library {
  /** Lettuce itself waits for 10 s for a connection, and for a minute for the reply to a login. */
  private static final Duration LONGEST_OPENING = Duration.ofSeconds(2);

  /** Lettuce has no pool that says how many. As many as a pool of Jedis has. */
  private static final int MOST_CONNECTIONS = 8;

  private final AtomicBoolean isShutDown; // the client of the program
  private final RedisURI uri; // of the server, of its sentinels, or of the first node of a cluster
  private final RedisClient opener;
  private final RedisClusterClient cluster; // null: no cluster
  private final Server only; // null: a cluster
  private volatile Map<String, Server> nodes = Map.of(); // of the cluster, by address

  private LettuceLibrary(AbstractRedisClient client) {
    isShutDown = (AtomicBoolean) Library.field(AbstractRedisClient.class, "shutdown", client);
    List<RedisURI> uris = uris(client);
    uri = uris.get(0);
    opener = RedisClient.create(client.getResources(), uri);
    ClientOptions options = options(client.getOptions());
    opener.setOptions(options);
    cluster =
        client instanceof RedisClusterClient
            ? RedisClusterClient.create(client.getResources(), uris)
            : null;
    if (cluster != null) {
      cluster.setOptions(
          ClusterClientOptions.builder(options)
              .topologyRefreshOptions(ClusterTopologyRefreshOptions.create()) // only `renew` asks
              .build());
    }
    only = cluster == null ? new LettuceServer(this, uri) : null;
  }

  static Library of(Object client) {
    return new LettuceLibrary((AbstractRedisClient) client);
  }

  /** Lettuce has no public method that returns them. */
  private static List<RedisURI> uris(AbstractRedisClient client) {
    var found = new ArrayList<RedisURI>();
    if (client instanceof RedisClusterClient) {
      var initial = (Iterable<?>) Library.field(RedisClusterClient.class, "initialUris", client);
      initial.forEach(uri -> found.add(copy((RedisURI) uri)));
    } else if (client instanceof RedisClient) {
      RedisURI own = (RedisURI) Library.field(RedisClient.class, "redisURI", client);
      if (own.getHost() != null || own.getSocket() != null || !own.getSentinels().isEmpty()) {
        found.add(copy(own));
      }
    }
    if (found.isEmpty()) {
      throw Library.refused(client);
    }
    return found;
  }

  /** The same, with a shorter timeout. */
  private static RedisURI copy(RedisURI source) {
    RedisURI.Builder copy = RedisURI.builder(source).withTimeout(shorter(source.getTimeout()));
    if (source.getSentinelMasterId() != null) {
      copy.withSentinelMasterId(source.getSentinelMasterId());
      source.getSentinels().forEach(sentinel -> copy.withSentinel(copy(sentinel)));
    }
    return copy.build();
  }

  private static Duration shorter(Duration timeout) {
    boolean isShorter = !timeout.isZero() && timeout.compareTo(LONGEST_OPENING) < 0;
    return isShorter ? timeout : LONGEST_OPENING;
  }

  private static ClientOptions options(ClientOptions ofClient) {
    Duration connecting = ofClient.getSocketOptions().getConnectTimeout();
    return ofClient
        .mutate()
        .autoReconnect(false)
        .protocolVersion(ProtocolVersion.RESP2) // the login needs no more permissions
        .pingBeforeActivateConnection(false)
        .timeoutOptions(TimeoutOptions.builder().timeoutCommands(false).build())
        .socketOptions(
            ofClient.getSocketOptions().mutate().connectTimeout(shorter(connecting)).build())
        .build();
  }

  @Override
  public boolean isCluster() {
    return cluster != null;
  }

  @Override
  public Server serverOf(String key) {
    if (only != null) {
      return only;
    }
    if (nodes.isEmpty()) {
      return null; // not asked yet
    }
    var node = cluster.getPartitions().getPartitionBySlot(SlotHash.getSlot(key));
    return node == null ? null : serverAt(address(node.getUri()));
  }

  private static String address(RedisURI uri) {
    return uri.getHost() + ":" + uri.getPort();
  }

  @Override
  public Server serverAt(String address) {
    return nodes.get(address);
  }

  @Override
  public void renew() {
    cluster.refreshPartitions();
    var found = new HashMap<String, Server>();
    for (var node : cluster.getPartitions()) {
      String host = node.getUri().getHost();
      int port = node.getUri().getPort();
      RedisURI at = RedisURI.builder(uri).withHost(host).withPort(port).build();
      found.put(address(at), new LettuceServer(this, at));
    }
    nodes = Map.copyOf(found);
  }

  /** What a command or a login failed with: an {@link ErrorReply}, or an {@link Unanswered}. */
  private static Exception failure(Throwable failed) {
    for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
      boolean isReply =
          cause instanceof RedisCommandExecutionException
              || cause instanceof RedisConnectionException
                  && RedisConnectionException.isProtectedMode(cause.getMessage());
      if (isReply) {
        return new ErrorReply((RedisException) cause);
      }
    }
    return new Unanswered(String.valueOf(failed.getMessage()), failed, false);
  }

  /** Lettuce logs a warning if a connection is closed twice. */
  private static void close(StatefulConnection<?, ?> connection) {
    if (connection.isOpen()) {
      connection.closeAsync();
    }
  }

  private record LettuceServer(LettuceLibrary of, RedisURI uri) implements Server {
    @Override
    public Connection connect() throws Exception {
      return new LettuceConnection(opened(of.opener.connectAsync(ByteArrayCodec.INSTANCE, uri)));
    }

    @Override
    public Messages open(String channel, Listener listener) throws Exception {
      var connection = opened(of.opener.connectPubSubAsync(StringCodec.UTF8, uri));
      return new LettuceMessages(connection, channel, listener);
    }

    /** Waits for a connection. An error reply to the login is thrown as such. */
    private static <T extends StatefulConnection<?, ?>> T opened(ConnectionFuture<T> opening)
        throws Exception {
      try {
        return opening.get();
      } catch (InterruptedException gateIsClosed) {
        opening.thenAccept(late -> late.closeAsync());
        throw gateIsClosed;
      } catch (ExecutionException failed) {
        Exception failure = failure(failed.getCause());
        throw failure instanceof ErrorReply ? failure : (Exception) failed.getCause();
      }
    }

    @Override
    public int mostConnections() {
      return MOST_CONNECTIONS;
    }

    @Override
    public boolean isClosed() {
      boolean isGone = of.only == null && !of.nodes.containsKey(address(uri));
      return isGone || of.isShutDown.get();
    }
  }

  private static final class LettuceConnection implements Connection {
    private final StatefulRedisConnection<byte[], byte[]> connection;
    private final Channel channel;
    private final Deque<Future<Object>> sent = new ArrayDeque<>();
    private long end;
    private boolean isInterruptible;

    LettuceConnection(StatefulRedisConnection<byte[], byte[]> connection) {
      this.connection = connection;
      var writer = ((RedisChannelHandler<?, ?>) connection).getChannelWriter();
      channel = (Channel) Library.field(DefaultEndpoint.class, "channel", writer);
    }

    @Override
    public void begin(long end, boolean isInterruptible) {
      this.end = end;
      this.isInterruptible = isInterruptible;
    }

    @Override
    public void send(String command, List<byte[]> words) {
      var arguments = new CommandArgs<>(ByteArrayCodec.INSTANCE);
      for (byte[] word : words) {
        arguments.add(word);
      }
      var type = CommandType.valueOf(command);
      var one = new AsyncCommand<>(new Command<>(type, new AnyOutput(), arguments));
      sent.add(one);
      connection.dispatch(one);
    }

    /** The thread that writes to this connection does all in the order in which it was asked. */
    @Override
    public void flush() throws Unanswered {
      try {
        var written = channel.eventLoop().submit(() -> {});
        written.awaitUninterruptibly(Math.max(1, end - System.nanoTime()), NANOSECONDS);
      } catch (RejectedExecutionException closed) {
        throw new Unanswered("the client is closed", closed, false);
      }
    }

    @Override
    public Object receive() throws Unanswered, InterruptedException {
      Future<Object> one = sent.remove();
      boolean isInterrupted = false;
      try {
        while (true) {
          try {
            return one.get(Math.max(0, end - System.nanoTime()), NANOSECONDS);
          } catch (InterruptedException interrupt) {
            if (isInterruptible) {
              throw interrupt;
            }
            isInterrupted = true;
          }
        }
      } catch (TimeoutException silent) {
        throw new Unanswered("no reply in time", silent, false);
      } catch (CancellationException closed) {
        throw new Unanswered("the connection was closed", closed, false);
      } catch (ExecutionException failed) {
        Exception failure = failure(failed.getCause());
        if (failure instanceof ErrorReply refused) {
          throw refused;
        }
        throw (Unanswered) failure;
      } finally {
        if (isInterrupted) {
          Thread.currentThread().interrupt();
        }
      }
    }

    @Override
    public void close() {
      LettuceLibrary.close(connection);
    }
  }

  /** Keeps a reply as it is. */
  private static final class AnyOutput extends CommandOutput<byte[], byte[], Object> {
    private final Deque<List<Object>> open = new ArrayDeque<>(); // lists that are not complete yet

    AnyOutput() {
      super(ByteArrayCodec.INSTANCE, null);
    }

    private void add(Object value) {
      if (open.isEmpty()) {
        output = value;
      } else {
        open.peek().add(value);
      }
    }

    @Override
    public void set(ByteBuffer bytes) {
      add(bytes == null ? null : codec.decodeValue(bytes));
    }

    @Override
    public void set(long number) {
      add(number);
    }

    @Override
    public void multi(int count) {
      var list = count < 0 ? null : new ArrayList<Object>();
      add(list);
      if (list != null) {
        open.push(list);
      }
    }

    @Override
    public void complete(int depth) {
      while (open.size() > depth) {
        open.pop();
      }
    }
  }

  private static final class LettuceMessages extends RedisPubSubAdapter<String, String>
      implements Messages, RedisConnectionStateListener {
    private final StatefulRedisPubSubConnection<String, String> connection;
    private final String channel;
    private final Listener listener;
    private final CompletableFuture<Void> ended = new CompletableFuture<>();

    LettuceMessages(
        StatefulRedisPubSubConnection<String, String> connection,
        String channel,
        Listener listener) {
      this.connection = connection;
      this.channel = channel;
      this.listener = listener;
      connection.addListener((RedisConnectionStateListener) this);
      connection.addListener((RedisPubSubListener<String, String>) this);
    }

    @Override
    public void read() throws Exception {
      confirm();
      try {
        ended.get();
      } catch (ExecutionException failed) {
        throw failure(failed.getCause());
      }
    }

    /** A connection that has ended already refuses the command. */
    @Override
    public void confirm() {
      connection
          .async()
          .subscribe(channel)
          .whenComplete(
              (none, failed) -> {
                if (failed != null) {
                  ended.completeExceptionally(failed);
                }
              });
    }

    @Override
    public void subscribed(String subscribed, long count) {
      listener.confirmed();
    }

    @Override
    public void message(String from, String text) {
      listener.received(text);
    }

    @Override
    public void onRedisDisconnected(RedisChannelHandler<?, ?> of) {
      ended.complete(null);
    }

    @Override
    public void close() {
      ended.complete(null);
      LettuceLibrary.close(connection);
    }
  }
}
