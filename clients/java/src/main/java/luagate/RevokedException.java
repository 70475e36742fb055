package luagate;

/** Another client removed this waiter from the line. The caller holds nothing. */
public final class RevokedException extends LuagateException {
  private static final long serialVersionUID = 1;

  RevokedException(String key, String id) {
    super(
        "%s: the place in line of the id %s was revoked. Call again to join the end of the line"
            .formatted(key, id),
        null);
  }
}
