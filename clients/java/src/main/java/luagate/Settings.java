package luagate;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * What a caller declares about a semaphore. An invalid setting throws an IllegalArgumentException.
 *
 * @param keys meta, holders, queue
 * @param lease null: {@link #DEFAULT_LEASE}, renewed in the background
 * @param onLost null: no notice
 */
record Settings(
    Luagate gate,
    List<String> keys,
    int limit,
    Duration lease,
    boolean autoRenew,
    int maxWaiting,
    Duration atLeast,
    Duration headStart,
    Consumer<Permit> onLost) {
  static final Duration DEFAULT_LEASE = Duration.ofSeconds(30);

  /** The scripts accept no more. */
  private static final Duration LONGEST_HEAD_START = Duration.ofDays(1);

  /** A name with a group, which is its hash tag. */
  private static final Pattern GROUPED = Pattern.compile("\\{[^{}]+\\}:[^{}]+");

  private static final Pattern PREFIX = Pattern.compile("[A-Za-z0-9._:-]{1,64}");
  private static final Pattern SPACE = Pattern.compile("[\\s\\p{Cntrl}\\p{IsWhite_Space}]");

  Settings {
    check(limit >= 1, "limit", limit, "an integer from 1 on");
    check(lease == null || lease.toMillis() >= 1, "lease", lease, "1 ms or more");
    check(maxWaiting >= 0, "maxWaiting", maxWaiting, "an integer from 0 on");
    check(!atLeast.isNegative(), "atLeast", atLeast, "zero or more");
    check(
        !headStart.isNegative() && headStart.compareTo(LONGEST_HEAD_START) <= 0,
        "headStart",
        headStart,
        "zero to one day");
  }

  static Settings of(Luagate gate, String prefix, String kind, String name, int limit) {
    int bytes = name.getBytes(UTF_8).length;
    check(
        bytes >= 1 && bytes <= 200 && !SPACE.matcher(name).find(),
        "name",
        name,
        "1 to 200 bytes without white space and control characters");
    boolean isGrouped = GROUPED.matcher(name).matches();
    check(
        isGrouped || !name.contains("{") && !name.contains("}"),
        "name",
        name,
        "braces only around a group, as in {group}:name");
    String tag = isGrouped ? name : "{" + name + "}";
    var keys =
        Stream.of("", ".holders", ".queue")
            .map(part -> prefix + ":" + kind + part + ":" + tag)
            .toList();
    return new Settings(gate, keys, limit, null, false, 0, Duration.ZERO, Duration.ZERO, null);
  }

  static void checkPrefix(String prefix) {
    String accepted = "1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'";
    check(PREFIX.matcher(prefix).matches(), "prefix", prefix, accepted);
  }

  static void check(boolean isValid, String what, Object got, String accepted) {
    if (!isValid) {
      String text = "%s: got %s. Accepted: %s".formatted(what, got, accepted);
      throw new IllegalArgumentException(text);
    }
  }

  /** The first key. It stands for the semaphore in errors. */
  String key() {
    return keys.get(0);
  }

  /** The hash tag of the keys. */
  String tag() {
    return key().replaceAll("^[^{]*\\{([^}]*)\\}.*$", "$1");
  }

  long leaseMs() {
    return (lease == null ? DEFAULT_LEASE : lease).toMillis();
  }

  boolean isRenewed() {
    return autoRenew || lease == null;
  }

  Settings withLease(Duration lease) {
    return new Settings(
        gate, keys, limit, lease, autoRenew, maxWaiting, atLeast, headStart, onLost);
  }

  Settings withAutoRenew() {
    return new Settings(gate, keys, limit, lease, true, maxWaiting, atLeast, headStart, onLost);
  }

  Settings withMaxWaiting(int waiters) {
    return new Settings(gate, keys, limit, lease, autoRenew, waiters, atLeast, headStart, onLost);
  }

  Settings withAtLeast(Duration hold) {
    return new Settings(gate, keys, limit, lease, autoRenew, maxWaiting, hold, headStart, onLost);
  }

  Settings withHeadStart(Duration by) {
    return new Settings(gate, keys, limit, lease, autoRenew, maxWaiting, atLeast, by, onLost);
  }

  Settings withOnLost(Consumer<Permit> notify) {
    return new Settings(
        gate, keys, limit, lease, autoRenew, maxWaiting, atLeast, headStart, notify);
  }
}
