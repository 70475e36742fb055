"""Counting semaphores and locks on Redis and Valkey, by the scripts of luagate.

    gate = Luagate(redis.Redis(socket_timeout=2), "lua")
    with gate.semaphore("market:account:17", 5).acquire(timeout=2):
        ...  # at most five at a time, first come, first served

Threads may share everything here. Nothing is re-entrant. All durations are seconds.
"""

import hashlib
import hmac
import json
import math
import queue
import re
import secrets
import threading
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import redis

CONTRACT = 1  # the version of lua/README.md that this file keeps to
PAUSES = (0.05, 0.2, 1, 2)  # before a call is made again whose reply was lost
RECHECK = 5  # whoever waits asks again at the latest after so long
PATIENCE = 15  # how long the server keeps the place of one who does not ask again
PATIENCE_UNHEARD = 60  # the same where messages do not come through
MESSAGE = re.compile(r"(\S+) ([0-9]+) ([0-9]+) (-1|[0-9]+) ([0-9]+) ([0-9a-f]{40})")


class TimedOut(Exception):
    """The permits were not granted in time."""


class Lost(Exception):
    """The permit is not held any more: its lease has ended, or it was released."""


class Revoked(Exception):
    """Somebody took the place in line away."""


class Scripts:
    """The scripts of the folder `lua/`, by their names in the manifest."""

    def __init__(self, client, folder):
        manifest = json.loads(Path(folder, "manifest.json").read_text("utf-8"))
        if manifest["contract"] != CONTRACT:
            raise ValueError(f"{folder} has contract {manifest['contract']}, this client knows {CONTRACT}")
        self.manifest = manifest["scripts"]
        # What is registered is called by EVALSHA, and loaded where the server does not know it.
        self.run = {}
        for name, script in self.manifest.items():
            self.run[name] = client.register_script(Path(folder, script["file"]).read_bytes())
            if self.run[name].sha != script["sha1"]:
                raise ValueError(f"{name}: the SHA-1 of {script['file']} is not that of the manifest")

    def call(self, name, keys, **arguments):
        """The reply: its `word`, and its fields by name. Same id, same outcome, so it is asked again when a reply is lost."""
        script = self.manifest[name]
        names = script["argv"]
        needed = len(names) - script.get("optional", 0)  # the last ones may be left out
        argv = [arguments[name] for name in names if name in arguments or name in names[:needed]]
        for pause in (*PAUSES, None):
            try:
                word, *fields = self.run[name](keys, argv)
                return SimpleNamespace(word=_text(word), **dict(zip(script["replies"][_text(word)], fields)))
            except (redis.ConnectionError, redis.TimeoutError):
                if pause is None:
                    raise
                time.sleep(pause)


class Luagate:
    """Semaphores and mutexes of one server. `client` should have a socket_timeout."""

    def __init__(self, client, lua_folder, prefix="luagate"):
        self.client, self.prefix = client, prefix
        self.scripts = Scripts(client, lua_folder)
        self._inbox, self._opening = None, threading.Lock()

    def semaphore(self, name, limit, lease=30):
        """So many permits are held at once at most, each until its lease ends unless it is refreshed."""
        return Semaphore(self, "semaphore", name, limit, lease)

    def mutex(self, name, lease=30):
        """A lock: there is one permit."""
        return Semaphore(self, "mutex", name, 1, lease)

    def inbox(self):
        """Where this client hears of its waits: one subscription, opened by the first that waits."""
        with self._opening:
            self._inbox = self._inbox or Inbox(self.client, f"{self.prefix}:inbox:{uuid.uuid4()}")
            return self._inbox

    def close(self):
        """Ends the subscription. What is held stays held until it is released or its lease ends."""
        with self._opening:
            if self._inbox:
                self._inbox.is_closed = True


class Semaphore:
    """A counting semaphore or, with a limit of 1, a lock."""

    def __init__(self, gate, kind, name, limit, lease):
        self.gate, self.limit, self.lease = gate, limit, lease
        self.keys = [f"{gate.prefix}:{kind}{part}:{{{name}}}" for part in ("", ".holders", ".queue")]

    def try_acquire(self, permits=1):
        """A permit at once, or None."""
        request = Request(self, permits)
        try:
            return request.ask()
        except BaseException:
            request.abandon()
            raise

    def acquire(self, permits=1, timeout=math.inf):
        """A permit, in line: first come, first served. Blocks; raises TimedOut or Revoked."""
        request, inbox = Request(self, permits), self.gate.inbox()
        inbox.requests[request.id] = request
        try:
            # The last word takes a grant that was on its way, or gives up the place.
            permit = request.wait(inbox, time.monotonic() + timeout) or request.ask()
        except BaseException:
            request.abandon()
            raise
        finally:
            if not request.is_abandoned:
                inbox.requests.pop(request.id, None)  # unless a late grant was released there
        if permit is None:
            raise TimedOut(f"{self.keys[0]}: {permits} of {self.limit} were not granted within {timeout} s")
        return permit

    def call(self, name, **arguments):
        return self.gate.scripts.call(f"semaphore/{name}", self.keys, **arguments)


class Request:
    """An id that asks for permits until they are granted, or it gives up."""

    def __init__(self, semaphore, permits):
        self.semaphore, self.permits = semaphore, permits
        self.id, self.secret = str(uuid.uuid4()), secrets.token_hex(16)
        self.ticket, self.is_abandoned = 0, False
        self.events = queue.SimpleQueue()  # messages, each with the time at which it came; None: ask again

    def ask(self, patience=0, inbox=""):
        """One call. None: it is denied or, with patience, in line."""
        lease_ms, wait_ms = int(self.semaphore.lease * 1000), patience * 1000
        self.asked = time.monotonic()
        self.reply = reply = self.semaphore.call(
            "acquire", id=self.id, permits=self.permits, limit=self.semaphore.limit, lease_ms=lease_ms,
            wait_ms=wait_ms, inbox=inbox and f"{inbox}#{self.secret}", ticket=self.ticket,
        )  # fmt: skip
        if reply.word in ("granted", "held"):
            return Permit(self, reply.fence, reply.expires_at, _deadline(self.asked, reply.expires_at, reply.now))
        if reply.word == "queued":
            self.ticket = reply.ticket
        if reply.word == "above_limit":
            raise ValueError(f"{self.semaphore.keys[0]}: {self.permits} permits are more than the limit {reply.limit}")

    def wait(self, inbox, end):
        """Asks in line, again and again. None: the time is over."""
        while time.monotonic() < end:
            if permit := self.ask(inbox.patience, inbox.channel):
                return permit
            in_front = self.reply.position - 1  # who may all be dead, and then it is on us to see the next lease end
            sleep = min(self.reply.retry_after / 1000, RECHECK, in_front or RECHECK)
            if permit := self.hear(min(end, self.asked + sleep)):
                return permit

    def hear(self, until):
        """Sleeps until it is time to ask again. A permit, if a message grants it before that."""
        while (left := until - time.monotonic()) > 0:
            try:
                event = self.events.get(timeout=left)
            except queue.Empty:
                return None
            if event is None:
                return None
            received, permits, fence, at, now = event
            if now < self.reply.now:
                continue  # old news
            if fence == 0 and at == -1:
                raise Revoked(f"{self.semaphore.keys[0]}: {self.id}")
            if fence == 0:
                until = min(until, received + (at - now) / 1000)
            elif fence > self.ticket and permits == self.permits:
                # It may have been long on its way, so it does not count from when it came alone.
                deadline = min(_deadline(self.asked, at, self.reply.now), _deadline(received, at, now))
                permit = Permit(self, fence, at, deadline)
                return None if permit.is_lost else permit

    def abandon(self):
        """Gives back or gives up whatever the id has. Where that fails, the inbox does it when a grant comes, or else time."""
        self.is_abandoned = True
        try:
            self.semaphore.call("release", id=self.id, keep=0)
            self.is_abandoned = False
        except redis.RedisError:
            pass


class Permit:
    """What was granted. Leaving its `with` block releases it."""

    def __init__(self, request, fence, expires_at, deadline):
        self.id, self.permits, self.ticket = request.id, request.permits, request.ticket
        self.fence, self.expires_at = fence, expires_at  # server time in ms; -1: never
        self._semaphore, self._deadline = request.semaphore, deadline

    @property
    def remaining(self):
        """Seconds until the lease ends: by this machine's clock, and early rather than late."""
        return max(0, self._deadline - time.monotonic())

    @property
    def is_lost(self):
        """Whether somebody else may hold it by now. Asks nobody."""
        return self.remaining == 0

    def refresh(self):
        """A lease as long as the first, from now on. Raises Lost. Call it at a third of the lease."""
        asked = time.monotonic()
        reply = self._semaphore.call("refresh", id=self.id, lease_ms=int(self._semaphore.lease * 1000))
        if reply.word == "lost":
            self._deadline = -math.inf
            raise Lost(f"{self._semaphore.keys[0]}: {self.id}")
        self.expires_at, self._deadline = reply.expires_at, _deadline(asked, reply.expires_at, reply.now)

    def release(self):
        """Gives it back; again does no harm. Whether it was still held."""
        self._deadline = -math.inf
        return self._semaphore.call("release", id=self.id, keep=0).word == "released"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Inbox:
    """The channel on which a client hears of its requests."""

    def __init__(self, client, channel):
        self.channel, self.patience = channel, PATIENCE
        self.requests, self.is_closed = {}, False
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(channel)
        while self._pubsub.get_message(timeout=RECHECK) is None:
            pass
        client.publish(channel, "")  # an error, where that is forbidden: scripts could not tell us anything, and would not say so
        [(_, listeners)] = client.pubsub_numsub(channel)
        if listeners == 0:  # a proxy is in between
            self.channel, self.patience = "", PATIENCE_UNHEARD
        threading.Thread(target=self._listen, name="luagate-inbox", daemon=True).start()

    def _listen(self):
        while not self.is_closed:
            try:
                message = self._pubsub.get_message(timeout=1)
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(PAUSES[0])  # the next look connects and subscribes again
                continue
            if message is None:
                continue
            if message["type"] == "subscribe":  # again: whatever was said in between is lost
                for request in list(self.requests.values()):
                    request.events.put(None)
            else:
                self._deliver(_text(message["data"]), time.monotonic())
        self._pubsub.close()

    def _deliver(self, text, received):
        """Hands a message to its request if the server sent it: then it is signed with the request's secret."""
        found = MESSAGE.fullmatch(text)
        request = found and self.requests.get(found[1])
        if not request:
            return
        signed = request.secret + text[: found.start(6) - 1]
        if not hmac.compare_digest(hashlib.sha1(signed.encode()).hexdigest(), found[6]):
            return
        request.events.put((received, *map(int, found.group(2, 3, 4, 5))))
        if request.is_abandoned:
            self.requests.pop(request.id, None)
            request.abandon()


def _deadline(instant, expires_at, now):
    """The end of a lease by this machine's clock, counted from an instant that was before the server's `now`."""
    return math.inf if expires_at == -1 else instant + (expires_at - now - 1) / 1000


def _text(value):
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
