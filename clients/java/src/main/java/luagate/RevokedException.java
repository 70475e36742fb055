package luagate;

/** Another client removed this waiter from the line. */
public final class RevokedException extends RuntimeException {
  private static final long serialVersionUID = 1;

  RevokedException(String key, String id) {
    super("%s: the wait of %s was revoked".formatted(key, id));
  }
}
