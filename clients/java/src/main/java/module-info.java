/** Fair counting semaphores and locks on Redis and Valkey. */
// Jedis and Lettuce have no module-info. A program needs one of them.
@SuppressWarnings("requires-automatic")
module luagate {
  requires static redis.clients.jedis;
  requires static org.apache.commons.pool2;
  requires static lettuce.core;
  requires static io.netty.common;
  requires static io.netty.transport;
  requires static io.netty.codec;
  requires com.google.gson;

  exports luagate;

  opens luagate to
      com.google.gson;
}
