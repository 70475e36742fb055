package luagate;

import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;

/**
 * The state of a semaphore. Long lists are read in pages, at different instants.
 *
 * @param limit the limit in force; 0: none is stored, since nobody used it for a while
 * @param isPinned whether {@link Semaphore#resize} set the limit
 * @param inUse the permits in use
 * @param waiterCount the number of waiters
 * @param holders in the order in which their leases end
 * @param waiters in the order in which they will be granted
 */
public record Inspection(
    int limit,
    boolean isPinned,
    int inUse,
    int waiterCount,
    List<Holder> holders,
    List<Waiter> waiters) {

  /**
   * A holder.
   *
   * @param label empty: none
   * @param permits 0: unknown, because keys were lost
   * @param remaining {@link Permit#FOREVER}: permanent
   * @param isCoolingDown whether it was released before its minimum hold ended
   */
  public record Holder(
      String id,
      String label,
      int permits,
      long fence,
      Duration remaining,
      boolean isCoolingDown) {}

  /**
   * A waiter.
   *
   * @param label empty: none
   * @param ticket the smallest is served first
   */
  public record Waiter(String id, String label, int permits, Ticket ticket) {}

  static Inspection of(Reply page, List<Holder> holders, List<Waiter> waiters) {
    return new Inspection(
        page.integer("limit"),
        page.number("pinned") == 1,
        page.integer("in_use"),
        page.integer("waiter_count"),
        List.copyOf(holders),
        List.copyOf(waiters));
  }

  static List<Holder> holders(Reply page) {
    long now = page.number("now");
    return rows(page, "holders").map(row -> holder(row, now)).toList();
  }

  private static Holder holder(List<?> row, long now) { // id permits fence expires_at cooling_down
    String id = (String) row.get(0);
    long expiresAt = number(row, 3);
    Duration remaining = expiresAt < 0 ? Permit.FOREVER : Duration.ofMillis(Math.max(0, expiresAt - now));
    boolean isCoolingDown = number(row, 4) == 1;
    int permits = (int) number(row, 1);
    return new Holder(id, Ids.label(id), permits, number(row, 2), remaining, isCoolingDown);
  }

  static List<Waiter> waiters(Reply page) {
    return rows(page, "waiters").map(Inspection::waiter).toList();
  }

  private static Waiter waiter(List<?> row) { // id permits ticket patience_until
    String id = (String) row.get(0);
    return new Waiter(id, Ids.label(id), (int) number(row, 1), new Ticket(number(row, 2)));
  }

  private static Stream<List<?>> rows(Reply page, String field) {
    return ((List<?>) page.fields().get(field)).stream().map(row -> (List<?>) row);
  }

  private static long number(List<?> row, int index) {
    return (Long) row.get(index);
  }
}
