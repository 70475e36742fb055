package luagate;

/**
 * A place in line. Of two waiters, the one with the smaller ticket is served first. {@link #parse}
 * returns the same ticket for its text, which can be stored.
 */
public final class Ticket implements Comparable<Ticket> {
  private final long number;

  Ticket(long number) {
    this.number = number;
  }

  /**
   * The ticket with this text, which {@link #toString} returned.
   *
   * @throws InvalidException for another text
   */
  public static Ticket parse(String text) {
    boolean isValid = text != null && text.matches("[1-9][0-9]{0,15}");
    Settings.check(isValid, "ticket", Settings.quoted(text), "the text of a ticket, \"\" + ticket");
    return new Ticket(Long.parseLong(text));
  }

  @Override
  public String toString() {
    return Long.toString(number);
  }

  @Override
  public int compareTo(Ticket other) {
    return Long.compare(number, other.number);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Ticket ticket && ticket.number == number;
  }

  @Override
  public int hashCode() {
    return Long.hashCode(number);
  }
}
