package luagate;

/**
 * The effect of {@link Semaphore#resize}.
 *
 * @param oldLimit 0: none was stored
 * @param newLimit the limit in force now
 * @param inUse the permits in use; more than a lowered limit, until enough are released
 */
public record Resized(int oldLimit, int newLimit, int inUse) {}
