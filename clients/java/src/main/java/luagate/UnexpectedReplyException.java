package luagate;

/**
 * The scripts never return this reply: a proxy may have changed it. Whether the call had an effect
 * is unknown.
 */
public final class UnexpectedReplyException extends LuagateException {
  private static final long serialVersionUID = 1;

  UnexpectedReplyException(String script, Object reply) {
    super(
        ("%s: unexpected reply; the script never returns this."
                + " Check for a proxy that changes replies: %.200s")
            .formatted(script, reply),
        null);
  }
}
