package luagate;

/**
 * A lock for readers and writers: many readers, or one writer. Fair: readers and writers wait in
 * one line. Nothing is re-entrant. Threads may share it.
 */
public final class RwLock {
  private final Semaphore read;
  private final Semaphore write;

  RwLock(Luagate gate, String name) {
    read = new Semaphore(new Settings(gate, "rwlock", name, Settings.MOST, false));
    write = new Semaphore(new Settings(gate, "rwlock", name, Settings.MOST, true));
  }

  /** The lock for a reader. */
  public Semaphore read() {
    return read;
  }

  /** The lock for a writer. {@link Permit#downgrade} turns a writer into a reader. */
  public Semaphore write() {
    return write;
  }
}
