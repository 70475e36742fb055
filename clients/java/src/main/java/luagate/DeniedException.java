package luagate;

/** Not granted at once: too few permits are free, or other callers wait in line. */
public final class DeniedException extends RefusedException {
  private static final long serialVersionUID = 1;

  DeniedException(String key, int inUse, int limit, int waiting, long nextExpiryMs) {
    super(
        ("%s: %d of %d permits are in use, and %d callers wait in line."
                + " Try again later, or call acquire")
            .formatted(key, inUse, limit, waiting),
        null,
        inUse,
        limit,
        waiting,
        nextExpiryMs);
  }
}
