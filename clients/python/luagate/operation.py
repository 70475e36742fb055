"""One call of the user: its deadline, its calls to the server, and what it releases if it fails.

An operation is a generator. It yields the number of seconds to wait, and receives the next event of its mailbox, or None if
there was none in time. One driver runs operations with threads, the other one with asyncio. So the caller waits only for its
mailbox. Calls to the server run elsewhere, and put themselves into the mailbox when they have ended.

No lock is taken here, in the agenda or in a mailbox: a signal handler or a finalizer may run at any point and call luagate.
"""

import math
from collections import deque
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, TypeVar

import redis
from luagate import clock, failures
from luagate.errors import Closed, LuagateError, NoPermission, TimedOut, UnexpectedReply, Unreachable
from luagate.inbox import ASK_AGAIN, Message
from luagate.scripts import Commands, Script

T = TypeVar("T")
Steps = Generator[float, Any, T]
Usage = tuple[str, int, int, int, float | None]  # name, permits in use, limit, callers in line, next expiry

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1)  # seconds before each repetition of a call
LOST_PAUSE = 0.01  # seconds: before the next call, after a grant whose lease ended before its reply was read
GRACE = 0.05  # seconds: for the last call of a waiter, after its deadline
NO_SERVER = 0.5  # seconds: for repetitions, if no server has ever answered
OUTAGE = 10  # seconds: how long a waiter in line waits for a server that does not answer
CLEAN_UP = 1  # seconds: the longest wait for releases after an error


def unknown(name: str) -> Usage:
    """The usage of a semaphore before the first reply."""
    return name, 0, 0, 0, None


class Job:
    """A call to the server. It runs in the background, and puts itself into a mailbox when it has ended.

    `until`: when its caller no longer waits; None: nobody waits.
    """

    def __init__(self, script: Script, commands: Commands, keys: list[str], mailbox: Any, until: float | None) -> None:
        self.script, self.commands, self.keys, self.mailbox = script, commands, keys, mailbox
        self.key = keys[0]
        self.until = math.inf if until is None else until
        # Whether it runs after the posted releases of its names. A release need not wait for them, and a refresh
        # must not.
        self.is_ordered = until is not None and script.name not in ("semaphore/release", "semaphore/refresh")
        self.last_delay: object = None  # of the session, when it was sent
        self.reply: Any = None
        self.error: Exception | None = None
        self.is_done = False

    def read(self, values: Any) -> None:
        """Takes the reply of the server."""
        try:
            self.reply = self.script.reply(values)
        except UnexpectedReply as error:
            self.error = error

    def end(self, error: Exception | None = None) -> None:
        self.error = error or self.error
        self.is_done = True  # before the mailbox is read, see `Agenda.release`
        self.mailbox.put_nowait(self)


class Operation:
    """One call of the user. `timeout`: in seconds; None: it has no deadline of its own, and ends within `call_timeout`."""

    def __init__(self, session: Any, name: str, timeout: float | None = None) -> None:
        self.session, self.name = session, name
        self.timeout = math.inf if timeout is None else timeout
        now = clock.now()
        self.end = now + self.timeout
        self.latest = now + session.call_timeout if timeout is None else math.inf
        self.mailbox = session.mailbox()
        self.early: deque[Any] = deque()  # events that arrived while it waited for something else
        self.claims: list[Any] = []  # what it may hold, and must release if it fails
        self.outage: float = session.call_timeout  # in seconds: how long it repeats a call that is not answered
        self.job: Job | None = None  # its last call
        self.is_unsure = False  # a call was not answered: the server may run it later
        self.usage: Usage = unknown(name)  # of the semaphore that it waits for, by the last reply

    def steps(self, steps: Steps[T]) -> Steps[T]:
        """Runs the steps. After an error nothing stays held: what was acquired is released, in the background if need be."""
        try:
            return (yield from steps)
        except (LuagateError, redis.RedisError) as error:
            releases = self.give_up()
            if not self.is_unsure and not isinstance(error, (Closed, NoPermission, Unreachable)):
                yield from self._released(releases)
            raise

    def give_up(self) -> list[Any]:
        """Releases in the background what it may hold. Does not wait; may be called at any point."""
        return [release for claim in self.claims if (release := claim.give_up())]

    def _released(self, releases: list[Any]) -> Steps[None]:
        """Waits until these have been released, but not long after the deadline."""
        now = clock.now()
        until = min(now + CLEAN_UP, max(now + GRACE / 2, self.end))
        for release in releases:
            release.mailbox = self.mailbox
        while not all(release.is_done for release in releases) and (left := until - clock.now()) > 0:
            yield left

    def call(self, name: str, keys: list[str], **arguments: Any) -> Steps[SimpleNamespace]:
        """Calls a script of semaphores until it is answered: a call with the same id has the same outcome."""
        script = self.session.scripts[f"semaphore/{name}"]
        return self.call_with(script, keys, script.argv(**arguments))

    def call_with(self, script: Any, keys: list[str], argv: list[Any]) -> Steps[SimpleNamespace]:
        began, attempt, failure, is_again = clock.now(), 0, None, False
        until = min(self.end, began + self.outage, self.latest)
        while True:
            self.job = job = self.session.start(script, keys, argv, self.mailbox, until)
            if not job.is_done and not (yield from self._answer(job, until)):
                self.is_unsure = True
                break
            if job.error is None:
                self.session.has_answered = True
                is_old = job.reply.word == "denied" and job.last_delay is not self.session.last_delay
                if not is_old or is_again or clock.now() >= until:
                    return job.reply  # type: ignore[no-any-return]
                is_again = True  # a release has failed that should have run before this call. Now it is ahead
                continue
            self.is_unsure = True
            failure = self._failure(job.error, began)
            pause = PAUSES[min(attempt, len(PAUSES) - 1)]
            attempt += 1
            if clock.now() + pause > until:
                yield from self.pause(until - clock.now())
                break
            yield from self.pause(pause)
        raise self.expired() from failure or redis.TimeoutError("the server has not answered in time")

    def pause_lost(self) -> Steps[None]:
        """A lease has ended before the reply was read: pauses, if there is time for another call."""
        if clock.now() + LOST_PAUSE >= self.latest:
            raise Unreachable(f"{self.name}: the replies take longer than the lease. Use a longer lease")
        yield from self.pause(LOST_PAUSE)

    def _failure(self, error: Exception, began: float) -> Exception:
        """The error, if the call is to be repeated after it."""
        if refused := failures.of_permission(error, self.session.prefix):
            raise refused from error
        if not failures.is_retried(error):
            raise error
        is_loading = isinstance(error, redis.BusyLoadingError)
        no_server = isinstance(error, redis.ConnectionError) and not is_loading and not self.session.has_answered
        if no_server and clock.now() - began > NO_SERVER:
            why = f"cannot connect to the server ({str(error).rstrip('.')})"
            raise Unreachable(f"{self.name}: {why}. Check that it runs and that the address is right") from error
        return error

    def expired(self) -> LuagateError:
        if clock.now() >= self.end:
            return TimedOut(*self.usage, self.timeout)
        return Unreachable(f"{self.name}: no answer within {self.outage:g} s. Check the server and the network")

    def _answer(self, job: Job, until: float) -> Steps[bool]:
        """Waits until the call has ended."""
        while (event := (yield until - clock.now())) is not job:
            if event is None and clock.now() >= until:
                return False
            self._keep(event)
        return True

    def pause(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> Steps[None]:
        until = clock.now() + seconds
        while not is_over() and (left := until - clock.now()) > 0:
            self._keep((yield left))

    def next(self, seconds: float) -> Steps[Any]:
        """The next message, ASK_AGAIN or None. Raises an error that ends the wait."""
        event = self.early.popleft() if self.early else (yield seconds)
        return event if self._is_kept(event) else None

    def _keep(self, event: Any) -> None:
        if self._is_kept(event):
            self.early.append(event)

    def _is_kept(self, event: Any) -> bool:
        if isinstance(event, BaseException):
            raise event
        return event is ASK_AGAIN or isinstance(event, Message)
