"""conformance.py URL CASES LUA: runs the cases in the folder CASES (see its README) with the scripts in the folder LUA."""

import hashlib
import json
import re
import sys
import time
import uuid
from pathlib import Path

import redis
from luagate.scripts import Scripts

TRIES = 100  # runs of one case, if the machine is too busy for its pauses
PATTERN = re.compile(r"[$*<>]|[0-9]+\.\.")
RANGE = re.compile(r"(?P<op>[<>]=?)(?P<bound>.*)|(?P<least>.*)\.\.(?P<most>.*)")


class Failed(Exception):
    pass


def check(is_so, *what):
    if not is_so:
        raise Failed(" ".join(map(str, what)))


def execute(client, commands):
    """Runs the commands of a call of a script, and returns its reply."""
    reply, error = None, None
    while True:
        try:
            command = commands.throw(error) if error else commands.send(reply)
        except StopIteration as end:
            return end.value
        try:
            reply, error = client.execute_command(*command), None
        except redis.RedisError as failed:
            error = failed


class Case:
    """One run of a case, under a unique prefix."""

    def __init__(self, client, scripts):
        self.client, self.scripts = client, scripts
        self.manifest = scripts.manifest["scripts"]
        self.prefix = f"conformance:{uuid.uuid4()}"
        self.names, self.span = {}, range(0)
        self.inboxes, self.paused = {}, 0

    def run(self, steps):
        for place, step in enumerate(steps, 1):
            kind = next(kind for kind in STEPS if kind in step)
            try:
                STEPS[kind](self, step)
            except (Failed, redis.RedisError) as error:
                raise Failed(f"step {place}, {json.dumps(step)[:300]}: {error}") from None

    def finish(self):
        """Checks that no message is unread, and cleans up."""
        try:
            for channel in self.inboxes:
                self.silent(channel)
        finally:
            for inbox, _ in self.inboxes.values():
                inbox.close()
            self.client.config_set("maxmemory", 0)

    # --- Steps ---

    def call(self, step):
        keys = step.get("keys")
        if keys is None:
            ons = step.get("on", "m")
            names = [name for name in self.manifest[step["call"]]["keys"] if name != "..."]
            keys = [f"@{name}:{on}" for on in ([ons] if isinstance(ons, str) else ons) for name in names]
        keys, argv = ([self.argument(word) for word in words] for words in (keys, step["argv"]))
        least = self.now()
        try:
            reply = self.run_script(self.scripts[step["call"]].commands(keys, argv))
        except redis.ResponseError as error:
            reply = error
        self.names.pop("now", None)
        self.span = range(least, self.now() + 1)
        if "error" in step:
            check(isinstance(reply, redis.ResponseError), "expected an error, got", reply)
            expected = " ".join(self.text(word) for word in step["error"].split(" "))
            code = getattr(reply, "status_code", None)  # since redis-py 7
            said = f"{code} {reply}" if code else str(reply)
            check(said == expected if expected.startswith("LUAGATE") else expected in said, "unexpected error:", said)
        else:
            check(not isinstance(reply, redis.ResponseError), "unexpected error:", reply)
            self.compare(step["reply"], reply)
            self.count(self.manifest[step["call"]]["replies"], reply)

    def command(self, step):
        reply = self.client.execute_command(*map(self.argument, step["command"]))
        if "reply" in step:
            self.compare(step["reply"], reply)

    def subscribe(self, step):
        channel = self.text(step["subscribe"])
        inbox = self.client.pubsub()
        inbox.subscribe(channel)
        check(inbox.get_message(timeout=5), "the subscription was not confirmed")
        self.inboxes[channel] = (inbox, [])

    def unsubscribe(self, step):
        channel = self.text(step["unsubscribe"])
        self.silent(channel)
        inbox, _ = self.inboxes.pop(channel)
        inbox.unsubscribe(channel)
        check(inbox.get_message(timeout=5), "the end of the subscription was not confirmed")
        inbox.close()

    def message(self, step):
        unread = self.unread(self.text(step["inbox"]))
        check(unread, "no message")
        message = unread.pop(0)
        if "secret" in step:
            message, _, signature = message.rpartition(" ")
            signed = step["secret"] + message
            check(hashlib.sha1(signed.encode()).hexdigest() == signature, "wrong signature:", message)
        words = [int(word) if re.fullmatch("-?[0-9]+", word) else word.encode() for word in message.split(" ")]
        self.compare(step["message"], words)

    def silence(self, step):
        self.silent(self.text(step["silence"]))

    def pause(self, step):
        time.sleep(step["pause_ms"] / 1000)
        self.paused += step["pause_ms"] / 1000

    def ends(self, step):
        for key, expected in step["ends"].items():
            least, left, most = self.now(), self.client.pttl(self.text(key)), self.now()
            for near in [left] if left < 0 else range(least + left - 2, most + left + 3):
                try:
                    self.compare(expected, near)
                    break
                except Failed as failed:
                    error = failed
            else:
                raise Failed(f"{key}: {error}")

    def full(self, step):
        self.client.config_set("maxmemory", int(step["full"]))

    def each(self, step):
        values = step["each"]
        for value in range(1, values + 1) if isinstance(values, int) else values:
            self.run(_substitute(step["steps"], value))

    # --- Helpers of steps ---

    def run_script(self, commands):
        return execute(self.client, commands)

    def now(self):
        seconds, micros = self.client.time()
        return seconds * 1000 + micros // 1000

    def unread(self, channel):
        """The messages that no step has consumed. A marker message ensures that all earlier messages have arrived."""
        inbox, unread = self.inboxes[channel]
        self.client.publish(channel, "END")
        while (message := inbox.get_message(timeout=5)["data"]) != b"END":
            unread.append(message.decode())
        return unread

    def silent(self, channel):
        unread = self.unread(channel)
        check(not unread, "unexpected messages:", unread)

    # --- Words of a case ---

    def argument(self, word):
        """The bytes of an argument."""
        if isinstance(word, dict):
            return bytes.fromhex(word["hex"]) if "hex" in word else word["long"].encode() * word["times"]
        if key := re.fullmatch(r"@([a-z]+)(?::([A-Za-z0-9]+))?(.*)", word):
            return f"{self.prefix}:{key[1]}:{{x}}:{key[2] or 'm'}{key[3]}".encode()
        if word.startswith("$"):
            value = self.names[word[1:]] if word[1:] in self.names else self.sum(word)
            return value if isinstance(value, bytes) else str(value).encode()
        return word.encode()

    def text(self, word):
        return self.argument(word).decode()

    def sum(self, text):
        """The value of a sum such as `$a-$b+3`."""
        def value(term):
            if term == "$us":
                return self.names["now"] * 1000
            return int(self.names[term[1:]] if term.startswith("$") else term)

        return sum((-1 if sign == "-" else 1) * value(term) for sign, term in re.findall(r"([+-]?)([^+-]+)", text))

    def compare(self, expected, got):
        self.bind(expected, got)
        check(self.fits(expected, got), "expected", json.dumps(expected), "got", got)

    def count(self, replies, got):
        """Checks the number of fields in a reply against the manifest. One field without a word is the reply itself."""
        fields = replies[""] if "" in replies else ["word", *replies[got[0].decode()]]
        check(len(fields) == 1 and "" in replies or len(got) == len(fields), "expected the fields", fields, "got", got)

    def bind(self, expected, got):
        """Binds the names in an expected reply that are not bound yet."""
        if isinstance(expected, list) and isinstance(got, list):
            for pair in zip(expected, got):
                self.bind(*pair)
        elif isinstance(expected, str) and PATTERN.match(expected):
            for word in expected.split(" "):
                if re.fullmatch(r"\$\w+", word) and word != "$us":
                    self.names.setdefault(word[1:], got)

    def fits(self, expected, got):
        if isinstance(expected, list):
            return isinstance(got, list) and len(expected) == len(got) and all(map(self.fits, expected, got))
        if isinstance(expected, dict) and "length" in expected:
            return isinstance(got, list) and len(got) == expected["length"]
        if isinstance(expected, str) and PATTERN.match(expected):
            return all(self.fits_word(word, got) for word in expected.split(" "))
        return got == (expected if isinstance(expected, int) else self.argument(expected))

    def fits_word(self, word, got):
        if word == "*":
            return True
        if word == "$now":
            return got == self.names["now"] and got in self.span
        if word[1:] in self.names and word.startswith("$"):
            return got == self.names[word[1:]]
        if not isinstance(got, int):
            return False
        if not (bounds := RANGE.fullmatch(word)):
            return got == self.sum(word)
        if bounds["op"] is None:
            return self.sum(bounds["least"]) <= got <= self.sum(bounds["most"])
        bound = self.sum(bounds["bound"])
        return {"<": got < bound, "<=": got <= bound, ">": got > bound, ">=": got >= bound}[bounds["op"]]


STEPS = {
    "call": Case.call,
    "command": Case.command,
    "subscribe": Case.subscribe,
    "unsubscribe": Case.unsubscribe,
    "message": Case.message,
    "silence": Case.silence,
    "pause_ms": Case.pause,
    "ends": Case.ends,
    "full": Case.full,
    "each": Case.each,
}


def _substitute(step, value):
    """The step with the value in place of {each}."""
    if isinstance(step, dict):
        return {_substitute(key, value): _substitute(other, value) for key, other in step.items()}
    if isinstance(step, list):
        return [_substitute(other, value) for other in step]
    if step == "{each}":
        return value
    return step.replace("{each}", str(value)) if isinstance(step, str) else step


def run(client, scripts, case):
    """Runs a case, again if it failed but took too long. Returns the failure, or None."""
    slack = case.get("slack_ms", 20) / 1000
    for _ in range(TRIES):
        attempt, begun = Case(client, scripts), time.monotonic()
        try:
            try:
                attempt.run(case["steps"])
            finally:
                attempt.finish()
            return None
        except Failed as error:
            if time.monotonic() - begun - attempt.paused < slack:
                return str(error)
            failed = error
    return f"failed {TRIES} times, each time too slowly for a valid result. The last failure: {failed}"


def main(url, folder, lua):
    client = redis.Redis.from_url(url, socket_timeout=5)
    scripts = Scripts(lua)
    passed = failed = 0
    for file in sorted(Path(folder).glob("*.json")):
        for case in json.loads(file.read_text("utf-8")):
            if error := run(client, scripts, case):
                print(f"{file.stem}: {case['name']}: {error}")
                failed += 1
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
