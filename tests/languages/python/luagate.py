"""Counting semaphores and locks on Redis and Valkey, with the scripts of luagate.

    gate = Luagate(redis.Redis(socket_timeout=2), "lua")
    with gate.semaphore("market:account:17", 5).acquire(timeout=2):
        ...  # at most five at a time, first come, first served

    user, total = gate.semaphore("{market}:user:7", 3), gate.semaphore("{market}:total", 100)
    with gate.several([(user, 1), (total, 1)]).acquire(timeout=2):
        ...  # one permit of each, or none

Threads may share all objects. Nothing is re-entrant. All durations are in seconds. `try_acquire` of several semaphores needs
names with the same `{group}:`.
"""

import contextlib
import math
import queue
import re
import secrets
import threading
import time
import uuid

import redis
from luagate_server import RECHECK, Inbox, Scripts

MOST_SEMAPHORES = 64  # the most semaphores that `several` takes
GROUPED = re.compile(r"\{[^{}]+\}:[^{}]+")  # a name with a group, which is its hash tag


class TimedOut(Exception):
    """The permits were not granted within the timeout."""


class LineFull(Exception):
    """The line has `max_waiting` waiters or more. `waiting` is their number."""

    def __init__(self, why, waiting):
        super().__init__(why)
        self.waiting = waiting


class Lost(Exception):
    """The permit is no longer held: its lease ended, or it was released or revoked."""


class Revoked(Exception):
    """Another client removed this waiter from the line."""


class Luagate:
    """Semaphores and mutexes on one server. `client` should have a `socket_timeout`."""

    def __init__(self, client, lua_folder, prefix="luagate"):
        self.client, self.prefix = client, prefix
        self.scripts = Scripts(client, lua_folder)
        self._inbox, self._opening = None, threading.Lock()

    def semaphore(self, name, limit, lease=30, max_waiting=0, at_least=0):
        """At most `limit` permits are held at a time. A permit ends with its lease, unless it is refreshed before.

        If `max_waiting` or more callers wait in line, `acquire` raises LineFull and does not wait. 0: no bound.
        A permit that is released earlier than `at_least` seconds after its grant stays in use until then. The lease is not
        shorter than `at_least`.
        """
        return Semaphore(self, "semaphore", name, limit, lease, max_waiting, at_least)

    def mutex(self, name, lease=30, max_waiting=0, at_least=0):
        """A lock: a semaphore with one permit."""
        return Semaphore(self, "mutex", name, 1, lease, max_waiting, at_least)

    def several(self, wants):
        """Permits of several semaphores together, all or none: `[(semaphore, permits), ...]`."""
        return Several(self, wants)

    def inbox(self):
        """The channel of all waiters of this client: one subscription, which the first waiter opens."""
        with self._opening:
            self._inbox = self._inbox or Inbox(self.client, f"{self.prefix}:inbox:{uuid.uuid4()}")
            return self._inbox

    def close(self):
        """Ends the subscription. Permits stay held until they are released or their leases end."""
        with self._opening:
            if self._inbox:
                self._inbox.is_closed = True


class Semaphore:
    """A counting semaphore or, with a limit of 1, a lock."""

    def __init__(self, gate, kind, name, limit, lease, max_waiting, at_least):
        self.gate, self.limit, self.lease = gate, limit, lease
        self.max_waiting, self.at_least_ms = max_waiting, round(at_least * 1000)
        tag = name if GROUPED.fullmatch(name) else f"{{{name}}}"
        self.keys = [f"{gate.prefix}:{kind}{part}:{tag}" for part in ("", ".holders", ".queue")]

    def try_acquire(self, permits=1):
        """Returns permits at once, or None. Does not wait."""
        request = Request(self, permits)
        try:
            return request.ask()
        except BaseException:
            request.abandon()
            raise

    def acquire(self, permits=1, timeout=math.inf):
        """Waits in line for permits: first come, first served. Blocks. Raises TimedOut, LineFull or Revoked."""
        return self.acquire_beside(Permits([]), permits, timeout, time.monotonic() + timeout)

    def acquire_beside(self, held, permits, timeout, end):
        """Like `acquire`, and refreshes the permits `held` meanwhile."""
        request, inbox = Request(self, permits, held.keep), self.gate.inbox()
        inbox.requests[request.id] = request
        try:
            # The last call takes a grant whose message has not arrived yet, or leaves the line.
            permit = request.wait(inbox, end) or request.ask()
        except LineFull:
            raise  # the id has no permits and no place in line
        except BaseException:
            request.abandon()
            raise
        finally:
            if not request.is_abandoned:
                inbox.requests.pop(request.id, None)  # otherwise the inbox still releases a late grant
        if permit is None:
            raise TimedOut(f"{self.keys[0]}: {permits} of {self.limit} permits were not granted within {timeout} s")
        return permit

    def call(self, name, **arguments):
        return self.gate.scripts.call(f"semaphore/{name}", self.keys, **arguments)


class Request:
    """The calls of one id for its permits, until they are granted or the caller gives up."""

    def __init__(self, semaphore, permits, keep=lambda: math.inf):
        self.semaphore, self.permits = semaphore, permits
        self.keep = keep  # called during the wait; returns the seconds until its next call is due
        self.id, self.secret = str(uuid.uuid4()), secrets.token_hex(16)
        self.ticket, self.is_abandoned = 0, False
        self.events = queue.SimpleQueue()  # messages, each with the time of its arrival; None: ask again

    def ask(self, patience=0, inbox=""):
        """One call of the script `acquire`. None: denied or, with patience, in line."""
        semaphore = self.semaphore
        lease_ms, wait_ms = int(semaphore.lease * 1000), patience * 1000
        more = {}
        if semaphore.max_waiting or semaphore.at_least_ms:
            more = {"max_waiting": semaphore.max_waiting, "at_least_ms": semaphore.at_least_ms}
        self.asked = time.monotonic()
        self.reply = reply = semaphore.call(
            "acquire", id=self.id, permits=self.permits, limit=semaphore.limit, lease_ms=lease_ms,
            wait_ms=wait_ms, inbox=inbox and f"{inbox}#{self.secret}", ticket=self.ticket, **more,
        )  # fmt: skip
        if reply.word in ("granted", "held"):
            return Permit(self, reply.fence, reply.expires_at, _deadline(self.asked, reply.expires_at, reply.now))
        if reply.word == "queued":
            self.ticket = reply.ticket
        if reply.word == "above_limit":
            raise self.above(reply.limit)
        if reply.word == "denied" and patience:
            why = f"{reply.waiting} callers wait in line already, and max_waiting is {semaphore.max_waiting}. Try again later"
            raise LineFull(f"{semaphore.keys[0]}: {why}", reply.waiting)

    def above(self, limit):
        why = f"{self.permits} permits are more than the limit in force. Accepted: 1 to {limit}. Ask for fewer"
        return ValueError(f"{self.semaphore.keys[0]}: {why}")

    def wait(self, inbox, end):
        """Waits in line, and asks again from time to time. None: the timeout ended."""
        while time.monotonic() < end:
            self.keep()
            if permit := self.ask(inbox.patience, inbox.channel):
                return permit
            ahead = self.reply.position - 1  # if all these waiters are dead, only this one notices the next lease end
            sleep = min(self.reply.retry_after / 1000, RECHECK, ahead or RECHECK)
            if permit := self.receive(min(end, self.asked + sleep)):
                return permit

    def receive(self, until):
        """Sleeps until it is time to ask again. Returns a permit if a message grants it before that."""
        while time.monotonic() < until:
            pause = self.keep()
            try:
                event = self.events.get(timeout=max(0, min(pause, until - time.monotonic())))
            except queue.Empty:
                continue
            if event is None:
                return None
            received, permits, fence, at, now = event
            if now < self.reply.now:
                continue  # older than the last reply
            if fence == 0 and at == -1:
                raise Revoked(f"{self.semaphore.keys[0]}: the wait of {self.id} was revoked")
            if fence == 0:
                until = min(until, received + (at - now) / 1000)
            elif fence > self.ticket and permits == self.permits:
                # The message may have been delayed: its arrival alone would give a deadline that is too late.
                deadline = min(_deadline(self.asked, at, self.reply.now), _deadline(received, at, now))
                permit = Permit(self, fence, at, deadline)
                return None if permit.is_lost else permit

    def abandon(self):
        """Releases the permits of the id, or its place in line.

        If the call fails, the inbox calls this again when a grant arrives. Otherwise the lease or the waiter's deadline on
        the server ends.
        """
        self.is_abandoned = True
        try:
            self.semaphore.call("release", id=self.id, keep=0)
            self.is_abandoned = False
        except redis.RedisError:
            pass


class Permit:
    """Permits of one semaphore. Leaving the `with` block releases them."""

    def __init__(self, request, fence, expires_at, deadline):
        self.id, self.permits, self.ticket = request.id, request.permits, request.ticket
        self.fence, self.expires_at = fence, expires_at  # server time in ms; -1: never
        self.key = request.semaphore.keys[0]
        self._semaphore, self._deadline = request.semaphore, deadline

    @property
    def remaining(self):
        """Seconds until the lease ends, by this machine's clock: never later than on the server."""
        return max(0, self._deadline - time.monotonic())

    @property
    def is_lost(self):
        """Whether another client may hold it by now. Sends no call."""
        return self.remaining == 0

    @property
    def due(self):
        """Seconds until a third of the lease is over."""
        return self.remaining - self._semaphore.lease * 2 / 3

    def refresh(self):
        """Starts the lease anew. Raises Lost. Call it when a third of the lease is over."""
        asked = time.monotonic()
        reply = self._semaphore.call("refresh", id=self.id, lease_ms=int(self._semaphore.lease * 1000))
        if reply.word == "lost":
            self._deadline = -math.inf
            raise Lost(f"{self._semaphore.keys[0]}: the lease of {self.id} ended, or its permit was released or revoked")
        self.expires_at, self._deadline = reply.expires_at, _deadline(asked, reply.expires_at, reply.now)

    def release(self):
        """Releases the permit and returns whether it was still held. A second call does no harm."""
        self._deadline = -math.inf
        return self._semaphore.call("release", id=self.id, keep=0).word == "released"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Several:
    """Grants permits of several semaphores, all or none."""

    def __init__(self, gate, wants):
        self.gate, self.wants = gate, list(wants)
        self.keys = [semaphore.keys[0] for semaphore, _ in self.wants]
        if not 1 <= len(self.keys) <= MOST_SEMAPHORES:
            raise ValueError(f"several: got {len(self.keys)} semaphores. Accepted: 1 to {MOST_SEMAPHORES}")
        for key in self.keys:
            if self.keys.count(key) > 1:
                raise ValueError(f"several: got {key} twice. Accepted: each semaphore once. Ask for more permits of it instead")
        if any(semaphore.gate is not gate for semaphore, _ in self.wants):
            raise ValueError("several: got a semaphore of another Luagate. Accepted: semaphores of the same Luagate")

    def try_acquire(self):
        """Returns permits of all at once, or None. The names must share a group, as in `{market}:user:7` and `{market}:total`."""
        tags = {key.partition("{")[2].partition("}")[0] for key in self.keys}
        if len(tags) > 1:
            tags = ", ".join(sorted(tags))
            accepted = "names with one hash tag, as {x}:a and {x}:b. For other names, call acquire"
            raise ValueError(f"try_acquire: got the hash tags {tags}. Accepted: {accepted}")
        requests = [Request(*want) for want in self.wants]
        for request in requests:
            request.id = requests[0].id
        try:
            return self._ask(requests)
        except BaseException:
            for request in requests:
                request.abandon()
            raise

    def _ask(self, requests):
        keys, argv, asked = [], [requests[0].id], time.monotonic()
        for request in requests:
            semaphore = request.semaphore
            keys += semaphore.keys
            argv += [request.permits, semaphore.limit, int(semaphore.lease * 1000), semaphore.at_least_ms]
        reply = self.gate.scripts.call_with("semaphore/try_acquire_all", keys, argv)
        if reply.word == "above_limit":
            raise requests[reply.index - 1].above(reply.limit)
        if reply.word == "denied":
            return None
        permits = []
        for request, (_, fence, expires_at, *_) in zip(requests, reply.permits):
            permits.append(Permit(request, fence, expires_at, _deadline(asked, expires_at, reply.now)))
        return Permits(permits)

    def acquire(self, timeout=math.inf):
        """Waits in line for permits of all, one semaphore after the other: by limit, smallest first, then by key.

        Permits that are already held are refreshed meanwhile. Raises what `Semaphore.acquire` raises, and Lost. After an
        exception nothing stays held.
        """
        end, held = time.monotonic() + timeout, Permits([])
        try:
            for semaphore, permits in sorted(self.wants, key=lambda want: (want[0].limit, want[0].keys[0].encode())):
                held.permits.append(semaphore.acquire_beside(held, permits, timeout, end))
            for permit in held.permits[:-1]:
                permit.refresh()
            if held.is_lost:
                raise Lost(f"several: a lease ended before the permits of all of {', '.join(self.keys)} were granted")
        except BaseException:
            with contextlib.suppress(redis.RedisError):
                held.release()
            raise
        held.permits.sort(key=lambda permit: self.keys.index(permit.key))
        return held


class Permits:
    """Permits of several semaphores, in the order of the request. Leaving the `with` block releases all."""

    def __init__(self, permits):
        self.permits = permits

    @property
    def fences(self):
        """The fence of each semaphore."""
        return [permit.fence for permit in self.permits]

    @property
    def remaining(self):
        """Seconds until the first of the leases ends."""
        return min((permit.remaining for permit in self.permits), default=math.inf)

    @property
    def is_lost(self):
        """Whether another client may hold one of them by now. Sends no call."""
        return self.remaining == 0

    def refresh(self):
        """Refreshes all, each with the lease of its semaphore. Raises Lost if one of them is lost."""
        for permit in self.permits:
            permit.refresh()

    def keep(self):
        """Refreshes each permit when a third of its lease is over. Returns the seconds until the next one is due."""
        for permit in self.permits:
            if permit.due <= 0:
                permit.refresh()
        return min((permit.due for permit in self.permits), default=math.inf)

    def release(self):
        """Releases all and returns whether all were still held. A second call does no harm."""
        were_held, failed = True, None
        for permit in self.permits:
            try:
                were_held &= permit.release()
            except redis.RedisError as error:
                failed = error
        if failed:
            raise failed
        return were_held

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


def _deadline(instant, expires_at, now):
    """The end of a lease by this machine's clock, counted from an instant before the server's `now`."""
    return math.inf if expires_at == -1 else instant + (expires_at - now - 1) / 1000
