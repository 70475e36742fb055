"""All rules of the client, without threads and tasks.

Each operation is a generator. It yields a step, as the name of a method of the driver and its arguments, and receives the result.
One driver runs the steps with threads, the other one with asyncio:

- `script name keys argv`: calls a script once, and returns its reply
- `sleep seconds`
- `open_inbox end`: the inbox of the client, subscribed; raises a redis.TimeoutError at `end`
- `receive request seconds`: the next event of a request, or None
- `scripts name calls`: calls a script several times in one packet, and returns the replies and errors
- `load name`: stores a script on the server
- `finish steps error`: runs these steps to their end, after an operation ended with this error, and also if it was cancelled
"""

import math
import secrets
import time
import uuid

import redis
from luagate.errors import Invalid, LineFull, Lost, Revoked, TimedOut
from luagate.held import Held, deadline
from luagate.inbox import ASK_AGAIN

LOST_REPLY = (redis.ConnectionError, redis.TimeoutError)
PAUSES = (0.05, 0.2, 1, 2)  # before each retry of a call whose reply was lost
RETRIES = 3.5  # no retry begins later than this after the first call
SHORT_RETRIES = 0.5  # the same after the caller's timeout, and for a release after an error
RECHECK = 5  # a waiter asks again after this time at the latest
MOST_SEMAPHORES = 64  # the most semaphores that `several` takes


def call(scripts, name, keys, argv, retries=RETRIES):
    """Calls a script. Retries if the reply is lost: a call with the same id has the same outcome."""
    latest = time.monotonic() + retries
    for pause in (*PAUSES, None):
        try:
            return scripts.reply(name, (yield "script", name, keys, argv))
        except LOST_REPLY:
            if pause is None or time.monotonic() + pause > latest:
                raise
            yield "sleep", pause


def call_for(gate, settings, name, retries=RETRIES, **arguments):
    """Calls a script of a semaphore with arguments by name."""
    name = f"semaphore/{name}"
    return call(gate.scripts, name, settings.keys, gate.scripts.argv(name, arguments), retries)


def try_acquire(gate, settings, permits):
    """Permits at once, or None."""
    request = Request(gate, settings, permits)
    try:
        return (yield from request.ask())
    except BaseException as error:
        yield "finish", request.abandon(), error
        raise


def acquire(gate, settings, permits, timeout, end, wait=None):
    """Waits in line for permits until `end`, by `time.monotonic`. `wait`: is called with the request."""
    request = Request(gate, settings, permits)
    if wait:
        wait(request)
    inbox = yield "open_inbox", end
    inbox.requests[request.id] = request
    try:
        # The last call takes a grant whose message has not arrived yet, or leaves the line.
        held = (yield from request.wait(inbox, end)) or (yield from request.ask(end=end))
    except LineFull:
        raise  # the id has no permits and no place in line
    except BaseException as error:
        yield "finish", request.abandon(), error
        raise
    finally:
        if not request.is_abandoned:
            inbox.requests.pop(request.id, None)  # otherwise the inbox still releases a late grant
    if held is None:
        raise TimedOut(f"{settings.key}: {permits} of {settings.limit} permits were not granted within {timeout} s")
    return held


def refresh(gate, held):
    """Starts the lease anew."""
    asked = time.monotonic()
    reply = yield from call_for(gate, held.settings, "refresh", id=held.id, lease_ms=held.settings.lease_ms)
    try:
        held.refreshed(reply, asked)
    except Lost:
        held.end()
        gate.keeper.remove(held)
        raise
    gate.keeper.changed(held)


def release(gate, held):
    """Releases the permit. Returns whether it was still held."""
    gate.keeper.remove(held)
    held.end()
    reply = yield from call_for(gate, held.settings, "release", id=held.id, keep=0)
    return reply.word == "released"


class Request:
    """The calls of one id for its permits, until they are granted or the caller gives up."""

    def __init__(self, gate, settings, permits):
        if not isinstance(permits, int):
            raise Invalid(f"permits: got {permits!r}. Accepted: an integer from 1 on")
        self.gate, self.settings, self.permits = gate, settings, permits
        self.id, self.secret = str(uuid.uuid4()), secrets.token_hex(16)
        self.ticket, self.is_abandoned = 0, False
        self.events = gate.mailbox()  # messages, ASK_AGAIN, or an exception that ends the wait

    def ask(self, patience=0, inbox="", end=math.inf):
        """One call of the script `acquire`. None: denied or, with patience, in line. After `end` it is hardly retried."""
        settings, more = self.settings, {}
        if settings.max_waiting or settings.at_least_ms or settings.head_start_ms:
            more = {"max_waiting": settings.max_waiting, "at_least_ms": settings.at_least_ms}
        if settings.head_start_ms:
            more["head_start_ms"] = settings.head_start_ms
        self.asked = time.monotonic()
        retries = min(RETRIES, max(SHORT_RETRIES, end - self.asked))
        self.reply = reply = yield from call_for(
            self.gate, settings, "acquire", retries, id=self.id, permits=self.permits, limit=settings.limit,
            lease_ms=settings.lease_ms, wait_ms=patience * 1000, inbox=inbox, ticket=self.ticket, **more,
        )  # fmt: skip
        if reply.word in ("granted", "held"):
            return self.granted(reply.fence, reply.expires_at, deadline(self.asked, reply.expires_at, reply.now))
        if reply.word == "queued":
            self.ticket = reply.ticket
        if reply.word == "above_limit":
            raise above_limit(settings, self.permits, reply.limit)
        if reply.word == "denied" and patience:
            why = f"{reply.waiting} callers wait in line already, and max_waiting is {settings.max_waiting}. Try again later"
            raise LineFull(f"{settings.key}: {why}", reply.waiting)

    def granted(self, fence, expires_at, end):
        held = Held(self.settings, self.id, self.ticket, self.permits, fence, expires_at, end)
        return held if held.remaining else None

    def wait(self, inbox, end):
        """Waits in line, and asks again from time to time. None: the timeout ended."""
        while time.monotonic() < end:
            if held := (yield from self.ask(inbox.patience, inbox.address(self.secret), end)):
                return held
            sleep = min(self.reply.retry_after / 1000, RECHECK)
            if held := (yield from self.receive(min(end, self.asked + sleep))):
                return held

    def receive(self, until):
        """Sleeps until it is time to ask again. Returns a permit if a message grants it before that."""
        while (left := until - time.monotonic()) > 0:
            event = yield "receive", self, left
            if event is ASK_AGAIN:
                return None
            if isinstance(event, Exception):
                raise event
            if event is None or event.now < self.reply.now:
                continue  # older than the last reply
            if event.fence == 0 and event.at == -1:
                raise Revoked(f"{self.settings.key}: the wait of {self.id} was revoked")
            if event.fence == 0:
                until = min(until, event.received + (event.at - event.now) / 1000)
            elif self.is_new(event.fence) and event.permits == self.permits:
                # The message may have been delayed: its arrival alone would give a deadline that is too late.
                by_call = deadline(self.asked, event.at, self.reply.now)
                return self.granted(event.fence, event.at, min(by_call, deadline(event.received, event.at, event.now)))

    def is_new(self, fence):
        """Whether the server gave this fence after the place in line.

        The ticket is the next fence of that time, lower by the head start (both in µs).
        """
        return fence > self.ticket + 1000 * self.settings.head_start_ms

    def abandon(self):
        """Releases the permits of the id, or its place in line.

        If the call fails, the inbox calls this again when a grant arrives. Otherwise the lease or the waiter's deadline on the
        server ends.
        """
        self.is_abandoned = True
        try:
            yield from call_for(self.gate, self.settings, "release", SHORT_RETRIES, id=self.id, keep=0)
            self.is_abandoned = False
        except redis.RedisError:
            pass


def above_limit(settings, permits, limit):
    return Invalid(f"{settings.key}: {permits} permits are more than the limit in force. Accepted: 1 to {limit}. Ask for fewer")
