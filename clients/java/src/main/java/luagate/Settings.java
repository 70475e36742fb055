package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** What a caller declares about a semaphore. An invalid setting throws an InvalidException. */
final class Settings implements Cloneable {
  /** The highest limit. */
  static final int MOST = Integer.MAX_VALUE;

  static final long DEFAULT_LEASE_MS = 30_000;

  /** The scripts accept no more: a hundred years, and a day. */
  static final long LONGEST_MS = 3_155_760_000_000L;

  static final long LONGEST_HEAD_START_MS = 86_400_000L;

  /** Longer than any program runs. */
  static final long UNLIMITED_NS = Long.MAX_VALUE / 2;

  private static final Pattern PREFIX = Pattern.compile("[A-Za-z0-9._:-]{1,64}");
  private static final Pattern SPACE = Pattern.compile("[\\p{Cc}\\p{IsWhite_Space}]");

  /** Half of a surrogate pair, which no encoding can show. */
  private static final Pattern LONE = Pattern.compile("[\\p{Cs}]");

  private final Luagate gate;
  private final List<String> keys; // meta, holders, queue
  private final int limit;
  private final boolean isLock; // its limit cannot be changed
  private final boolean isWriter; // a permit is that of a writer: all permits of a lock
  private Long leaseMs; // null: the default lease, renewed; 0: permanent
  private boolean isRenewed; // also if it is not the default lease
  private boolean isStrict; // refuses another limit in force
  private int maxWaiting; // 0: no bound
  private long atLeastMs;
  private long headStartMs;
  private String label; // null: none
  private Consumer<Permit> onLost; // null: no notice

  Settings(Luagate gate, String kind, String name, int limit, boolean isWriter) {
    Name.check(name);
    check(limit >= 1, "limit", limit, "an integer from 1 to " + MOST);
    String tag = name.startsWith("{") ? name : "{" + name + "}";
    this.gate = gate;
    this.limit = limit;
    isLock = !kind.equals("semaphore");
    this.isWriter = isWriter;
    label = gate.label();
    keys =
        Stream.of("", ".holders", ".queue")
            .map(part -> gate.prefix() + ":" + kind + part + ":" + tag)
            .toList();
  }

  static void checkPrefix(String prefix) {
    String accepted = "1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'";
    check(prefix != null && PREFIX.matcher(prefix).matches(), "prefix", quoted(prefix), accepted);
  }

  static void checkLabel(String label) {
    checkWord("label", label, 163);
  }

  private static void checkWord(String what, String word, int mostBytes) {
    check(isWord(word, mostBytes), what, quoted(word), accepted(mostBytes));
  }

  static String accepted(int mostBytes) {
    return "1 to " + mostBytes + " bytes of UTF-8 without white space and control characters";
  }

  static boolean isWord(String word, int mostBytes) {
    return word != null
        && !word.isEmpty()
        && UTF_8.newEncoder().canEncode(word) // no half of a surrogate pair
        && word.getBytes(UTF_8).length <= mostBytes
        && !SPACE.matcher(word).find();
  }

  static void checkId(String id) {
    checkWord("id", id, 200);
  }

  /** A duration in ms. Zero is accepted only if {@code leastMs} is 0. */
  static long millis(String what, Duration duration, long leastMs, long mostMs) {
    boolean isValid = duration != null && !duration.isNegative();
    isValid = isValid && duration.compareTo(Duration.ofMillis(mostMs)) <= 0;
    isValid = isValid && (leastMs == 0 && duration.isZero() || duration.toMillis() >= 1);
    String least = leastMs == 0 ? "zero, or 1 ms" : leastMs + " ms";
    check(isValid, what, duration, "a Duration of " + least + " to " + mostMs + " ms");
    return duration.toMillis();
  }

  /** The end of a timeout of zero to a hundred years, by {@link System#nanoTime}. */
  static long deadline(Duration timeout) {
    millis("timeout", timeout, 0, LONGEST_MS);
    return System.nanoTime() + timeout.toNanos();
  }

  static void check(boolean isValid, String what, Object got, String accepted) {
    if (!isValid) {
      throw new InvalidException("%s: got %s. Accepted: %s".formatted(what, got, accepted));
    }
  }

  /** A text of the caller, for an error: its beginning, in quotes. */
  static String quoted(String text) {
    if (text == null) {
      return "null";
    }
    String begin = text.length() > 100 ? text.substring(0, 100) + "..." : text;
    var shown = LONE.matcher(begin);
    String escape = "\\\\u%04x"; // one backslash in the result
    return "\"" + shown.replaceAll(half -> escape.formatted(half.group().codePointAt(0))) + "\"";
  }

  /** A copy with a change. */
  private Settings with(Consumer<Settings> change) {
    try {
      var copy = (Settings) clone();
      change.accept(copy);
      return copy;
    } catch (CloneNotSupportedException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  Settings withLease(Duration lease) {
    long ms = millis("lease", lease, 1, LONGEST_MS);
    return with(copy -> copy.leaseMs = ms);
  }

  Settings withAutoRenew() {
    return with(copy -> copy.isRenewed = true);
  }

  Settings withPermanentLease() {
    return with(copy -> copy.leaseMs = 0L);
  }

  Settings withStrict() {
    return with(copy -> copy.isStrict = true);
  }

  Settings withMaxWaiting(int waiters) {
    check(waiters >= 0, "maxWaiting", waiters, "an integer from 0 to " + MOST);
    return with(copy -> copy.maxWaiting = waiters);
  }

  Settings withAtLeast(Duration hold) {
    long ms = millis("atLeast", hold, 0, LONGEST_MS);
    return with(copy -> copy.atLeastMs = ms);
  }

  Settings withHeadStart(Duration by) {
    long ms = millis("headStart", by, 0, LONGEST_HEAD_START_MS);
    return with(copy -> copy.headStartMs = ms);
  }

  Settings withLabel(String label) {
    checkLabel(label);
    return with(copy -> copy.label = label);
  }

  Settings withOnLost(Consumer<Permit> notify) {
    check(notify != null, "onLost", null, "a function");
    return with(copy -> copy.onLost = notify);
  }

  Luagate gate() {
    return gate;
  }

  List<String> keys() {
    return keys;
  }

  int limit() {
    return limit;
  }

  boolean isLock() {
    return isLock;
  }

  boolean isWriter() {
    return isWriter;
  }

  long leaseMs() {
    return leaseMs == null ? DEFAULT_LEASE_MS : leaseMs;
  }

  boolean isPermanent() {
    return leaseMs() == 0;
  }

  /** A permanent lease begins as an ordinary one, since the reply to its grant may be lost. */
  long firstLeaseMs() {
    return isPermanent() ? DEFAULT_LEASE_MS : leaseMs();
  }

  boolean isRenewed() {
    return isRenewed || leaseMs == null;
  }

  int maxWaiting() {
    return maxWaiting;
  }

  long atLeastMs() {
    return atLeastMs;
  }

  long headStartMs() {
    return headStartMs;
  }

  Consumer<Permit> onLost() {
    return onLost;
  }

  /** The first key. It stands for the semaphore in errors. */
  String key() {
    return keys.get(0);
  }

  /** The hash tag of the keys. */
  String tag() {
    return key().replaceAll("^[^{]*\\{([^}]*)\\}.*$", "$1");
  }

  String newId() {
    return Ids.id(label);
  }

  /** The time for which a grant lasts if it is not renewed. */
  long leaseNs() {
    return isPermanent() ? UNLIMITED_NS : MILLISECONDS.toNanos(Math.max(leaseMs(), atLeastMs));
  }

  /** The number of permits on the server. */
  int serverPermits(int permits) {
    String accepted = isWriter ? "1: a writer" : "an integer from 1 to " + MOST;
    check(permits >= 1 && (!isWriter || permits == 1), "permits", permits, accepted);
    return isWriter ? MOST : permits;
  }

  /** Throws if the semaphore is strict, and this limit is in force instead of its own. */
  void checkLimit(int inForce) {
    if (isStrict && inForce != limit) {
      throw new LimitMismatchException(key(), limit, inForce);
    }
  }

  AboveLimitException aboveLimit(int permits, Reply reply) {
    return new AboveLimitException(key(), permits, reply.integer("limit"));
  }

  DeniedException denied(Reply reply) {
    return new DeniedException(
        key(),
        reply.integer("in_use"),
        reply.integer("limit"),
        reply.integer("waiting"),
        reply.number("next_expiry"));
  }

  LineFullException lineFull(Reply reply) {
    return new LineFullException(
        key(),
        maxWaiting,
        reply.integer("in_use"),
        reply.integer("limit"),
        reply.integer("waiting"),
        reply.number("next_expiry"));
  }
}
