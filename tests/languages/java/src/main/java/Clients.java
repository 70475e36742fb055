import java.util.Map;

/** Makes clients of a library for Redis. */
interface Clients {
  /** Those of the library that {@code LUAGATE_CLIENT} names. The other one is not on the class path. */
  Clients OF_LIBRARY =
      System.getenv().getOrDefault("LUAGATE_CLIENT", "").startsWith("lettuce")
          ? new LettuceClients()
          : new JedisClients();

  interface Maker {
    AutoCloseable make() throws Exception;
  }

  /** A client of one server. */
  AutoCloseable open(String url) throws Exception;

  /** A client of the cluster of this node. */
  AutoCloseable cluster(String url) throws Exception;

  /** A client of the master with this name, which the sentinel at this address names. */
  AutoCloseable sentinel(String url, String master) throws Exception;

  /** More kinds of clients by name. At least one of them is refused. */
  Map<String, Maker> more(String url);

  /** Whether it is an exception of the library. */
  boolean isError(Throwable failed);
}
