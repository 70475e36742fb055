import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import luagate.InvalidException;
import luagate.Luagate;
import luagate.Semaphore;
import luagate.Several.Want;
import luagate.Ticket;

/** Calls the client with invalid arguments. */
final class Arguments {
  private interface Attempt {
    void run() throws Exception;
  }

  private static final List<Duration> DURATIONS =
      java.util.Arrays.asList(
          null,
          Duration.ofMillis(-1),
          Duration.ofSeconds(Long.MIN_VALUE),
          Duration.ofNanos(1),
          Duration.ofNanos(999_999),
          Duration.ofMillis(3_155_760_000_001L),
          Duration.ofSeconds(Long.MAX_VALUE));

  final List<String> wrong = new ArrayList<>();
  int total;

  Arguments(Object redis, Luagate gate) {
    Semaphore semaphore = gate.semaphore("arguments", 1);
    for (Duration duration : DURATIONS) {
      check("lease " + duration, () -> semaphore.lease(duration));
      check("atLeast " + duration, () -> semaphore.atLeast(duration));
      check("headStart " + duration, () -> semaphore.headStart(duration));
      check("timeout " + duration, () -> semaphore.acquire(duration));
      check("several " + duration, () -> gate.several(new Want(semaphore)).acquire(duration));
      check("callTimeout " + duration, () -> Luagate.builder(redis).callTimeout(duration));
    }
    check("lease 0", () -> semaphore.lease(Duration.ZERO));
    check("callTimeout 0", () -> Luagate.builder(redis).callTimeout(Duration.ZERO));
    check("headStart", () -> semaphore.headStart(Duration.ofMillis(86_400_001)));
    for (int number : new int[] {0, -1, Integer.MIN_VALUE}) {
      check("limit " + number, () -> gate.semaphore("arguments", number));
      check("permits " + number, () -> semaphore.tryAcquire(number));
      check("permits in line " + number, () -> semaphore.acquire(number));
      check("want " + number, () -> new Want(semaphore, number));
      check("resize " + number, () -> semaphore.resize(number));
    }
    check("maxWaiting -1", () -> semaphore.maxWaiting(-1));
    check("permits of a writer", () -> gate.rwlock("arguments").write().tryAcquire(2));
    String lone = "\ud800"; // half of a surrogate pair
    for (String word :
        new String[] {null, "", "a b", "a\n", lone, "x".repeat(201), "x".repeat(10_000)}) {
      check("name " + word, () -> gate.semaphore(word, 1));
      check("mutex " + word, () -> gate.mutex(word));
      check("rwlock " + word, () -> gate.rwlock(word));
      check("label " + word, () -> semaphore.label(word));
      check("label of the gate " + word, () -> Luagate.builder(redis).label(word));
      check("prefix " + word, () -> new Luagate(redis, word));
      check("id " + word, () -> semaphore.revoke(word));
    }
    for (String text : new String[] {null, "", "0", "017", "-1", "seven", "1".repeat(17)}) {
      check("ticket " + text, () -> Ticket.parse(text));
    }
    for (String name : new String[] {"{", "}", "a{b}", "{a}b", "{}:a"}) {
      check("name " + name, () -> gate.semaphore(name, 1));
    }
    check("got \"a b\". ", "name", () -> gate.semaphore("a b", 1));
    check("got \"\\ud800\". ", "name", () -> gate.semaphore(lone, 1));
    check("nameFrom " + null, () -> Luagate.nameFrom(null));
    // The same as in other languages.
    for (JsonElement row : names()) {
      String text = row.getAsJsonObject().get("text").getAsString();
      if (!Luagate.nameFrom(text).equals(row.getAsJsonObject().get("name").getAsString())) {
        wrong.add("nameFrom " + text);
      }
    }
    check("prefix", () -> new Luagate(redis, "{x}"));
    check("label", () -> semaphore.label("x".repeat(164)));
    check("onLost null", () -> semaphore.onLost(null));
    check("scripts null", () -> Luagate.builder(redis).scripts((Path) null));
    check("client null", () -> new Luagate(null));
    check("want null", () -> new Want(null, 1));
    check("several of none", () -> gate.several());
    check("several null", () -> gate.several((Want) null));
    check("several twice", () -> gate.several(new Want(semaphore), new Want(semaphore)));
  }

  private void check(String what, Attempt attempt) {
    check("", what, attempt);
  }

  /** The error contains this part, says what is accepted, and is short. */
  private void check(String part, String what, Attempt attempt) {
    total++;
    try {
      attempt.run();
      wrong.add(what + ": accepted");
    } catch (InvalidException expected) {
      String text = expected.getMessage();
      if (!text.contains(part + "Accepted: ") || text.length() >= 400) {
        wrong.add(what + ": " + text);
      }
    } catch (Exception other) {
      wrong.add(what + ": " + other);
    }
  }

  /** Texts and their names in all languages. */
  private static JsonArray names() {
    try {
      return JsonParser.parseString(Files.readString(Path.of("lua/names.json"))).getAsJsonArray();
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
  }
}
