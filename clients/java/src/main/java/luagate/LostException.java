package luagate;

/** The permit is no longer held: its lease ended, or it was released or revoked. */
public final class LostException extends RuntimeException {
  private static final long serialVersionUID = 1;

  LostException(String key, String id) {
    super(
        "%s: the lease of %s ended, or its permit was released or revoked".formatted(key, id));
  }
}
