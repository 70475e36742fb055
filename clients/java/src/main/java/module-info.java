/** Fair counting semaphores and locks on Redis and Valkey. */
@SuppressWarnings({"requires-automatic", "requires-transitive-automatic"}) // Jedis has no module-info
module luagate {
  requires transitive redis.clients.jedis;
  requires org.apache.commons.pool2;
  requires com.google.gson;

  exports luagate;

  opens luagate to
      com.google.gson;
}
