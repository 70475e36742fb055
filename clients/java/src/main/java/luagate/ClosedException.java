package luagate;

/** The gate was closed. */
public final class ClosedException extends LuagateException {
  private static final long serialVersionUID = 1;

  ClosedException() {
    super("the gate is closed. Make a new Luagate", null);
  }
}
