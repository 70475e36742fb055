"""The API for threads. Threads may share all objects."""

import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import redis
from luagate import clients, clock, process, several_steps, steps
from luagate.agenda import Agenda
from luagate.api import Gate, RwLock, SemaphoreValues, SeveralValues, Values, wants_of
from luagate.block import Blocks
from luagate.calls import Calls, Workers
from luagate.errors import Closed, Invalid, LuagateError
from luagate.held import Held
from luagate.hold import Hold
from luagate.inbox import Inbox
from luagate.operation import CLEAN_UP, Job, Operation, Steps, T
from luagate.posted import Posted
from luagate.session import Session
from luagate.settings import check_id, check_timeout
from luagate.state import Resized, State

ENDING = 0.1  # seconds: for a thread to end that has nothing more to do

__all__ = ["Luagate", "Permit", "Permits", "RwLock", "Semaphore", "Several"]


class Permit(Values, Blocks):
    """A held permit. Leaving the `with` block releases it; an error of this release is only logged."""

    @property
    def _all(self) -> list[Held]:
        return [self._held]

    @property
    def _each(self) -> "list[Permit]":
        return [self]

    def refresh(self) -> None:
        """Starts the lease anew. Blocks for one call, at most `call_timeout`. Raises Lost."""
        self._gate.run(f"refresh {self._held.settings.key}", steps.refresh, self._held)

    def release(self) -> bool:
        """Releases the permit and returns whether it was still held. A second call does no harm.

        Blocks for one call, at most `call_timeout`. After an error, also after an interrupt, the release is repeated in the
        background until the lease ends.
        """
        return bool(self._gate.run(f"release {self._held.settings.key}", steps.release, self._all))

    def downgrade(self) -> None:
        """A writer of a lock for readers and writers becomes a reader and keeps its fence. Blocks for one call. Raises Lost."""
        self._check_writer()
        self._gate.run(f"downgrade {self._held.settings.key}", steps.downgrade, self._held)

    def __enter__(self) -> "Permit":
        self._enter()
        return self


class Permits(SeveralValues[Permit], Blocks):
    """Held permits of several semaphores. Leaving the `with` block releases all."""

    @property
    def _all(self) -> list[Held]:
        return self._held

    @property
    def _each(self) -> "list[Permit]":
        return self.permits

    def refresh(self) -> None:
        """Refreshes all, each with the lease of its semaphore. Raises Lost if one of them is lost."""
        self._gate.run(f"refresh {self!r}", several_steps.refresh_each, self._held)

    def release(self) -> bool:
        """Releases all and returns whether all were still held. A second call does no harm. As `Permit.release`."""
        return bool(self._gate.run(f"release {self!r}", steps.release, self._held))

    def __enter__(self) -> "Permits":
        self._enter()
        return self


class Semaphore(SemaphoreValues):
    """A counting semaphore or, with a limit of 1, a lock. Nothing is re-entrant."""

    def try_acquire(self, permits: int = 1) -> Permit:
        """Returns permits at once. Does not wait in line. Blocks for one call, at most `call_timeout`.

        Raises Denied, AboveLimit, LimitMismatch, Unreachable.
        """
        return self._permit(None, steps.try_acquire, self._settings, permits)

    def acquire(self, permits: int = 1, timeout: float | None = None) -> Permit:
        """Waits in line for permits: first come, first served. Blocks for at most `timeout` seconds; None: no limit.

        With a timeout of 0 it asks once. Raises TimedOut, LineFull, Revoked, AboveLimit, LimitMismatch, Unreachable, Closed.
        After an error, also after an interrupt, nothing stays held: what was granted is released in the background.
        """
        seconds = check_timeout(timeout)
        return self._permit(seconds, steps.acquire, self._settings, permits)

    def hold(self, permits: int = 1, timeout: float | None = None, *, check: bool = False) -> Hold[Permit]:
        """Acquires for a `with` block, or as a decorator for each call of a function. Raises what `acquire` raises.

        The error of the work is never replaced. With `check`, the block ends with Lost if the permit was lost meanwhile and the
        work has raised no error.
        """
        return Hold(partial(self._hold, permits, timeout, check))

    @contextmanager
    def _hold(self, permits: int, timeout: float | None, check: bool) -> Iterator[Permit]:
        with self.acquire(permits, timeout) as permit:
            permit._is_checked = check
            yield permit
        if check and not permit._was_held:
            raise permit._held.lost()

    def inspect(self) -> State:
        """The limit, the holders and the waiters. Writes nothing. Blocks for one call for every 1,000 of them."""
        return State.of(self._run("inspect", steps.inspect, self._settings))

    def revoke(self, id: str) -> bool:
        """Takes the permits or the place in line from this id. Returns whether it held or waited. Blocks for one call."""
        return bool(self._run("revoke", steps.revoke, self._settings, check_id(id)))

    def resize(self, limit: int) -> Resized:
        """Sets the limit for all callers and pins it. A lower limit takes no permit away. Blocks for one call."""
        reply = self._run("resize", steps.resize, self._settings, self._check_limit(limit))
        return Resized(reply.old or None, reply.new, reply.in_use)

    def _run(self, name: str, make: Callable[..., Steps[Any]], *arguments: Any) -> Any:
        return self._gate.run(f"{name} {self._settings.key}", make, *arguments)

    def _permit(self, timeout: float | None, make: Callable[..., Steps[Held]], *arguments: Any) -> Permit:
        gate = self._gate

        def keep(held: Held, agenda: Agenda) -> Permit:
            return gate.keep(Permit(gate, held), agenda)  # type: ignore[no-any-return]

        return gate.run(self._settings.key, make, *arguments, timeout=timeout, keep=keep)  # type: ignore[no-any-return]


class Several:
    """Grants permits of several semaphores, all or none."""

    def __init__(self, gate: "Luagate", wants: Iterable[tuple[Semaphore, int]]) -> None:
        self._gate, self._wants = gate, wants_of(gate, wants)

    def try_acquire(self) -> Permits:
        """Returns permits of all at once. The names must share a group, as in `{market}:user:7` and `{market}:total`.

        Ignores `head_start`. Raises what `Semaphore.try_acquire` raises.
        """
        return self._permits(None, several_steps.try_acquire_several, self._wants)

    def acquire(self, timeout: float | None = None) -> Permits:
        """Waits in line for permits of all, one semaphore after the other: by limit, smallest first, then by key. Blocks.

        Permits that are already held are renewed meanwhile. Raises what `Semaphore.acquire` raises, and Lost. After an
        error nothing stays held.
        """
        seconds = check_timeout(timeout)
        return self._permits(seconds, several_steps.acquire_several, self._wants)

    def hold(self, timeout: float | None = None, *, check: bool = False) -> Hold[Permits]:
        """Acquires for a `with` block, or as a decorator. As `Semaphore.hold`."""
        return Hold(partial(self._hold, timeout, check))

    @contextmanager
    def _hold(self, timeout: float | None, check: bool) -> Iterator[Permits]:
        with self.acquire(timeout) as permits:
            permits._is_checked = check
            yield permits
        if check and not permits._was_held:
            raise permits._held[0].lost()

    def _permits(self, timeout: float | None, make: Callable[..., Steps[list[Held]]], *arguments: Any) -> Permits:
        gate, name = self._gate, "several " + ", ".join(settings.key for settings, _ in self._wants)

        def keep(held: list[Held], agenda: Agenda) -> Permits:
            return Permits(gate, held, [gate.keep(Permit(gate, one), agenda) for one in held])

        return gate.run(name, make, *arguments, timeout=timeout, keep=keep)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<several {', '.join(settings.key for settings, _ in self._wants)}>"


class Luagate(Gate[Semaphore, Permit]):
    """Semaphores, mutexes and locks on one server. Threads may share it. After a fork, the child uses connections of its own.

    `client`: a `redis.Redis`, the master of a `redis.Sentinel`, or a `redis.RedisCluster`. Its settings are used; the
    connections are luagate's own.
    `call_timeout`: seconds after which a call without a timeout of its own raises Unreachable.
    `label`: the part of the ids before the `/`, which tools show.
    """

    semaphore_class = Semaphore
    accepted = clients.SYNC, clients.ASYNC, "For asyncio use luagate.aio.Luagate"
    _sessions: "dict[int, _Session]"  # by process

    def several(self, wants: Iterable[tuple[Semaphore, int]]) -> Several:
        """Permits of several semaphores together, all or none: `[(semaphore, permits), ...]`."""
        return Several(self, wants)

    def close(self) -> None:
        """Ends waiting calls with Closed, the subscription, the renewal and the threads. Blocks for at most about a second.

        Permits stay held until their leases end. Later calls raise Closed. Does not close the client.
        """
        self.is_closed = True
        if session := self._sessions.get(process.number()):
            session.close()

    def __enter__(self) -> "Luagate":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        name: str,
        make: Callable[..., Steps[Any]],
        *arguments: Any,
        timeout: float | None = None,
        keep: Callable[[Any, Agenda], Any] = lambda value, _: value,
    ) -> Any:
        """Runs the steps that `make` returns. `keep`: makes the result of what was granted."""
        session = self._session()
        operation = Operation(session, name, timeout)
        try:
            return keep(session.run(operation, make(operation, *arguments)), session.agenda)
        except BaseException as error:  # also an interrupt, at any point: nothing stays held
            operation.is_unsure |= not isinstance(error, (LuagateError, redis.RedisError))
            operation.give_up()
            raise

    def _session(self) -> "_Session":
        here = process.number()
        session = self._sessions.get(here)
        if session is None:
            if self.is_closed:
                raise Closed("this Luagate is closed")
            for other in list(self._sessions.values()):
                other.leave_to_parent()
            session = self._sessions.setdefault(here, _Session(self))
        if session.queue is not queue.SimpleQueue:
            raise Invalid(
                "gevent or eventlet has patched the modules after the first call of this Luagate. "
                "Patch before it, or make a new Luagate"
            )
        return session


class _Session(Session):
    """Threads that work for a Luagate in one process."""

    def __init__(self, gate: Luagate) -> None:
        super().__init__(gate)
        self.queue = queue.SimpleQueue  # gevent and eventlet replace it
        self._workers = Workers()
        self._calls = Calls(self, self._workers)
        self._lock = threading.Lock()  # is taken only on threads of luagate, which no signal interrupts
        self._agenda: threading.Thread | None = None
        self._listeners: dict[Inbox, threading.Thread] = {}
        self._closing: queue.SimpleQueue[None] = queue.SimpleQueue()
        process.at_end(partial(_close, weakref.ref(self)))

    def mailbox(self) -> "queue.SimpleQueue[Any]":
        return queue.SimpleQueue()

    def run(self, operation: Operation, steps: Steps[T]) -> T:
        """Runs an operation to its end. The caller waits only for events."""
        try:
            self.begin(operation)
            return _run(operation.steps(steps), operation.mailbox)
        finally:
            self.ended(operation)

    def run_job(self, job: Job, until: float | None) -> None:
        if until is None:
            self._calls.run_elsewhere(job)
        else:
            self._calls.run(job, until)

    def post(self, posted: Posted) -> bool:
        return self._calls.post(posted)

    def notify(self, held: Held) -> None:
        self._workers.put(partial(Agenda.tell, held))

    def start_agenda(self) -> None:
        """Starts the thread of the agenda. Is called on threads of luagate only."""
        if self._agenda is None:
            with self._lock:
                if self._agenda is None:
                    work = partial(_run, self.agenda.loop(), self.agenda.mailbox)
                    thread = process.thread(work, name="luagate-agenda")
                    with suppress(RuntimeError):  # no thread can be started: the next call tries again
                        thread.start()
                        self._agenda = thread

    def listen(self, inbox: Inbox) -> None:
        if inbox not in self._listeners:
            self._workers.put(partial(self._start_listening, inbox))

    def _start_listening(self, inbox: Inbox) -> None:
        with self._lock:
            if inbox not in self._listeners and not self.is_closed:
                thread = process.thread(self._listen, inbox, name="luagate-inbox")
                self._listeners[inbox] = thread
                try:
                    thread.start()
                except RuntimeError:  # no thread can be started: waiters ask again without messages
                    self._listeners.pop(inbox)

    def _listen(self, inbox: Inbox) -> None:
        steps = inbox.listen(partial(self.connect, inbox))
        with suppress(StopIteration):
            step = next(steps)
            while not self.is_closed:
                target, name, *arguments = step
                try:
                    call: Any = self._pause if name == "pause" else getattr(target, name)
                    result = call(*arguments)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        steps.close()
        if inbox.subscription:
            inbox.subscription.close()
        self._listeners.pop(inbox, None)

    def _pause(self, seconds: float) -> None:
        with suppress(queue.Empty):
            self._closing.get(timeout=seconds)

    def close(self) -> None:
        end = clock.now() + CLEAN_UP
        self.end_all()
        self._calls.close()
        listeners = dict(self._listeners)
        for inbox in listeners:
            self._closing.put(None)
            _disconnect(inbox)
        if self._agenda:
            _join(self._agenda, end)
        self._calls.close()
        self._workers.close()
        end = max(end, clock.now() + ENDING)
        for thread in [*listeners.values(), *list(self._workers.threads)]:
            _join(thread, end)
        self._own = None

    def leave_to_parent(self) -> None:
        """In a child: closes the copy of the parent's subscription, so that the server notices when the parent ends."""
        self.is_closed = True
        for inbox in self._listeners:
            _disconnect(inbox)


def _run(steps: Steps[T], mailbox: Any) -> T:
    try:
        seconds = next(steps)
        while True:
            try:
                event = mailbox.get(timeout=min(max(0, seconds), threading.TIMEOUT_MAX))
            except queue.Empty:
                event = None
            seconds = steps.send(event)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def _close(session: "weakref.ref[_Session]") -> None:
    if of_gate := session():
        of_gate.close()


def _disconnect(inbox: Inbox) -> None:
    """Ends the wait of the subscription's thread."""
    with suppress(Exception):
        inbox.subscription.connection.disconnect()


def _join(thread: threading.Thread, end: float) -> None:
    if thread is not threading.current_thread():
        thread.join(max(0, end - clock.now()))
