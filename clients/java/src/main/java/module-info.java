/** Fair counting semaphores and locks on Redis and Valkey. */
// Jedis has no module-info.
@SuppressWarnings({"requires-automatic", "requires-transitive-automatic"})
module luagate {
  requires transitive redis.clients.jedis;
  requires org.apache.commons.pool2;
  requires com.google.gson;

  exports luagate;

  opens luagate to
      com.google.gson;
}
