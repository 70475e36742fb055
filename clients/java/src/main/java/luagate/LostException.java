package luagate;

/** The permit is no longer held: its lease ended, or it was released or revoked. */
public final class LostException extends LuagateException {
  private static final long serialVersionUID = 1;

  LostException(String key, String id) {
    super(
        ("%s: the id %s no longer holds its permit."
                + " Stop the work that the permit protects, then acquire again")
            .formatted(key, id),
        null);
  }
}
