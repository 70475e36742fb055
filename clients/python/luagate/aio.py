"""The API for asyncio.

    gate = Luagate(redis.asyncio.Redis())
    async with gate.semaphore("market:account:17", 5).acquire(timeout=2):
        ...  # at most five at a time, first come, first served

Every method can be cancelled: a cancelled call leaves no permit and no place in line. Its release is sent in the background.
A Luagate may be used in one event loop after the other, and after a fork: each has connections of its own.
"""

import asyncio
import inspect
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import redis
from luagate import clients, clock, failures, process, several_steps, steps
from luagate.agenda import Agenda
from luagate.aio_calls import Calls, converse
from luagate.api import END, Gate, RwLock, SemaphoreValues, SeveralValues, Values, log_failed_release, wants_of
from luagate.counters import Counters
from luagate.errors import (
    AboveLimit,
    Closed,
    Denied,
    Invalid,
    LimitMismatch,
    LineFull,
    Lost,
    LuagateError,
    NoPermission,
    Revoked,
    TimedOut,
    UnexpectedReply,
    Unreachable,
)
from luagate.held import Held
from luagate.hold import AsyncHold
from luagate.inbox import Inbox
from luagate.operation import CLEAN_UP, Job, Operation, Steps, T
from luagate.posted import LATE, Posted
from luagate.session import Session
from luagate.settings import PERMANENT, check_id, check_timeout
from luagate.state import Holder, Resized, State, Waiter
from luagate.ticket import Ticket

__all__ = [
    "PERMANENT",
    "AboveLimit",
    "Closed",
    "Counters",
    "Denied",
    "Holder",
    "Invalid",
    "LimitMismatch",
    "LineFull",
    "Lost",
    "Luagate",
    "LuagateError",
    "NoPermission",
    "Permit",
    "Permits",
    "Resized",
    "Revoked",
    "RwLock",
    "Semaphore",
    "Several",
    "State",
    "Ticket",
    "TimedOut",
    "UnexpectedReply",
    "Unreachable",
    "Waiter",
]

CONNECTIONS = 100  # to one node, for calls: further calls wait for one of them


class _Block:
    """The end of an `async with` block releases, and never replaces the error of the work."""

    _gate: Any
    _was_held = True
    _is_checked = False  # the caller asks at the end whether the permits were lost

    @property
    def _each(self) -> "list[Permit]":
        """The permits of each semaphore."""
        raise NotImplementedError

    async def release(self) -> bool:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._was_held = not self.is_lost  # type: ignore[attr-defined]
        try:
            if self._is_checked:
                self._was_held = await self.release()
            else:
                await self._gate.run(END, steps.end_block, self._each)
        except (LuagateError, redis.RedisError) as failed:
            log_failed_release(self, failed)


class Permit(Values, _Block):
    """A held permit. Leaving the `async with` block releases it; an error of this release is only logged."""

    @property
    def _each(self) -> "list[Permit]":
        return [self]

    async def refresh(self) -> None:
        """Starts the lease anew. Takes one call, at most `call_timeout`. Raises Lost."""
        await self._gate.run(f"refresh {self._held.settings.key}", steps.refresh, self._held)

    async def release(self) -> bool:
        """Releases the permit and returns whether it was still held. A second call does no harm.

        Takes one call, at most `call_timeout`. After an error, also if it is cancelled, the release is repeated in the
        background until the lease ends.
        """
        return bool(await self._gate.run(f"release {self._held.settings.key}", steps.release, [self._held]))

    async def downgrade(self) -> None:
        """A writer of a lock for readers and writers becomes a reader, and keeps its fence. Raises Lost."""
        self._check_writer()
        await self._gate.run(f"downgrade {self._held.settings.key}", steps.downgrade, self._held)

    async def __aenter__(self) -> "Permit":
        return self


class Permits(SeveralValues[Permit], _Block):
    """Held permits of several semaphores. Leaving the `async with` block releases all."""

    @property
    def _each(self) -> "list[Permit]":
        return self.permits

    async def refresh(self) -> None:
        """Refreshes all, each with the lease of its semaphore. Raises Lost if one of them is lost."""
        await self._gate.run(f"refresh {self!r}", several_steps.refresh_each, self._held)

    async def release(self) -> bool:
        """Releases all and returns whether all were still held. A second call does no harm. As `Permit.release`."""
        return bool(await self._gate.run(f"release {self!r}", steps.release, self._held))

    async def __aenter__(self) -> "Permits":
        return self


P = TypeVar("P", bound=_Block)


class Acquiring(Coroutine[Any, Any, P]):
    """A call that acquires: `await` returns the permit, and `async with` also releases it."""

    _permit: P

    def __init__(self, call: Coroutine[Any, Any, P]) -> None:
        self._call: Coroutine[Any, Any, P] = call

    def __await__(self) -> Generator[Any, Any, P]:
        return self._call.__await__()

    def send(self, value: Any) -> Any:
        return self._call.send(value)

    def throw(self, *error: Any) -> Any:
        return self._call.throw(*error)

    def close(self) -> None:
        self._call.close()

    async def __aenter__(self) -> P:
        self._permit = await self._call
        return self._permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._permit.__aexit__(kind, error, trace)


class Semaphore(SemaphoreValues):
    """A counting semaphore or, with a limit of 1, a lock. Nothing is re-entrant."""

    def try_acquire(self, permits: int = 1) -> Acquiring[Permit]:
        """Returns permits at once. Does not wait in line. Takes one call, at most `call_timeout`.

        To be awaited, or for an `async with` block. Raises Denied, AboveLimit, LimitMismatch, Unreachable.
        """
        return Acquiring(self._permit(None, steps.try_acquire, self._settings, permits))

    def acquire(self, permits: int = 1, timeout: float | None = None) -> Acquiring[Permit]:
        """Waits in line for permits: first come, first served. At most `timeout` seconds; None: no limit.

        To be awaited, or for an `async with` block. With a timeout of 0 it asks once. Raises TimedOut, LineFull, Revoked, AboveLimit, LimitMismatch, Unreachable, Closed.
        After an error, also if it is cancelled, nothing stays held: what was granted is released in the background.
        """
        return Acquiring(self._acquire(permits, timeout))

    async def _acquire(self, permits: int, timeout: float | None) -> Permit:
        seconds = check_timeout(timeout)
        return await self._permit(seconds, steps.acquire, self._settings, permits)

    def hold(self, permits: int = 1, timeout: float | None = None, *, check: bool = False) -> AsyncHold[Permit]:
        """Acquires for an `async with` block, or as a decorator for each call of a function. Raises what `acquire` raises.

        The error of the work is never replaced. With `check`, the block ends with Lost if the permit was lost meanwhile and the
        work has raised no error.
        """
        return AsyncHold(partial(self._hold, permits, timeout, check))

    @asynccontextmanager
    async def _hold(self, permits: int, timeout: float | None, check: bool) -> AsyncIterator[Permit]:
        async with self.acquire(permits, timeout) as permit:
            permit._is_checked = check
            yield permit
        if check and not permit._was_held:
            raise permit._held.lost()

    async def inspect(self) -> State:
        """The limit, the holders and the waiters. Writes nothing. Takes one call for every 1,000 of them."""
        return State.of(await self._run("inspect", steps.inspect, self._settings))

    async def revoke(self, id: str) -> bool:
        """Takes the permits or the place in line from this id. Returns whether it held or waited."""
        return bool(await self._run("revoke", steps.revoke, self._settings, check_id(id)))

    async def resize(self, limit: int) -> Resized:
        """Sets the limit for all callers and pins it. A lower limit takes no permit away."""
        reply = await self._run("resize", steps.resize, self._settings, self._check_limit(limit))
        return Resized(reply.old or None, reply.new, reply.in_use)

    async def _run(self, name: str, make: Callable[..., Steps[Any]], *arguments: Any) -> Any:
        return await self._gate.run(f"{name} {self._settings.key}", make, *arguments)

    async def _permit(self, timeout: float | None, make: Callable[..., Steps[Held]], *arguments: Any) -> Permit:
        gate = self._gate

        def keep(held: Held, agenda: Agenda) -> Permit:
            return gate.keep(Permit(gate, held), agenda)  # type: ignore[no-any-return]

        return await gate.run(self._settings.key, make, *arguments, timeout=timeout, keep=keep)  # type: ignore[no-any-return]


class Several:
    """Grants permits of several semaphores, all or none."""

    def __init__(self, gate: "Luagate", wants: Iterable[tuple[Semaphore, int]]) -> None:
        self._gate, self._wants = gate, wants_of(gate, wants)

    def try_acquire(self) -> Acquiring[Permits]:
        """Returns permits of all at once. The names must share a group, as in `{market}:user:7` and `{market}:total`.

        Ignores `head_start`. Raises what `Semaphore.try_acquire` raises.
        """
        return Acquiring(self._permits(None, several_steps.try_acquire_several, self._wants))

    def acquire(self, timeout: float | None = None) -> Acquiring[Permits]:
        """Waits in line for permits of all, one semaphore after the other: by limit, smallest first, then by key.

        Permits that are already held are renewed meanwhile. Raises what `Semaphore.acquire` raises, and Lost. After an
        error nothing stays held.
        """
        return Acquiring(self._acquire(timeout))

    async def _acquire(self, timeout: float | None) -> Permits:
        seconds = check_timeout(timeout)
        return await self._permits(seconds, several_steps.acquire_several, self._wants)

    def hold(self, timeout: float | None = None, *, check: bool = False) -> AsyncHold[Permits]:
        """Acquires for an `async with` block, or as a decorator. As `Semaphore.hold`."""
        return AsyncHold(partial(self._hold, timeout, check))

    @asynccontextmanager
    async def _hold(self, timeout: float | None, check: bool) -> AsyncIterator[Permits]:
        async with self.acquire(timeout) as permits:
            permits._is_checked = check
            yield permits
        if check and not permits._was_held:
            raise permits._held[0].lost()

    async def _permits(self, timeout: float | None, make: Callable[..., Steps[list[Held]]], *arguments: Any) -> Permits:
        gate, name = self._gate, "several " + ", ".join(settings.key for settings, _ in self._wants)

        def keep(held: list[Held], agenda: Agenda) -> Permits:
            return Permits(gate, held, [gate.keep(Permit(gate, one), agenda) for one in held])

        return await gate.run(name, make, *arguments, timeout=timeout, keep=keep)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<several {', '.join(settings.key for settings, _ in self._wants)}>"


class Luagate(Gate[Semaphore, Permit]):
    """Semaphores, mutexes and locks on one server, for the tasks of one event loop at a time.

    `client`: a `redis.asyncio.Redis`, the master of a `redis.asyncio.Sentinel`, or a `redis.asyncio.RedisCluster`. Its settings
    are used; the connections are luagate's own.
    `call_timeout`: seconds after which a call without a timeout of its own raises Unreachable.
    `label`: the part of the ids before the `/`, which tools show.
    """

    semaphore_class = Semaphore
    accepted = clients.ASYNC, clients.SYNC, "For threads use luagate.Luagate"
    _sessions: "dict[tuple[int, asyncio.AbstractEventLoop], _Session]"  # by process and event loop

    def several(self, wants: Iterable[tuple[Semaphore, int]]) -> Several:
        """Permits of several semaphores together, all or none: `[(semaphore, permits), ...]`."""
        return Several(self, wants)

    async def close(self) -> None:
        """Ends waiting calls with Closed, finishes pending releases, and ends all tasks. Takes at most about a second.

        Permits stay held until their leases end. Later calls raise Closed. Does not close the client.
        """
        self.is_closed = True
        if session := self._sessions.get((process.number(), asyncio.get_running_loop())):
            await session.close()

    async def __aenter__(self) -> "Luagate":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(
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
            return keep(await session.run(operation, make(operation, *arguments)), session.agenda)
        except BaseException:  # also if it is cancelled: nothing stays held
            operation.give_up()
            raise

    def _session(self) -> "_Session":
        here = process.number(), asyncio.get_running_loop()
        session = self._sessions.get(here)
        if session is None:
            if self.is_closed:
                raise Closed("this Luagate is closed")
            for (number, loop), other in list(self._sessions.items()):
                if number != here[0] or loop.is_closed():
                    del self._sessions[number, loop]
                    other.leave()
            session = self._sessions[here] = _Session(self)
        return session


class _Session(Session):
    """Tasks that work for a Luagate in one event loop."""

    def __init__(self, gate: Luagate) -> None:
        super().__init__(gate)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no strong references
        self._agenda: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._listeners: dict[Inbox, asyncio.Task[None]] = {}
        self._limits: dict[tuple[str, int] | None, asyncio.Semaphore] = {}  # by node
        self._calls = Calls(self, self._start)

    def mailbox(self) -> "_Mailbox":
        return _Mailbox()

    async def run(self, operation: Operation, steps: Steps[T]) -> T:
        """Runs an operation to its end. The caller waits only for events."""
        try:
            self.begin(operation)
            return await _run(operation.steps(steps), operation.mailbox)
        finally:
            self.ended(operation)

    def run_job(self, job: Job, until: float | None) -> None:
        self._agenda = self._agenda or self._start(_run(self.agenda.loop(), self.agenda.mailbox), "luagate-agenda")
        self._start(self._execute(job, until), "luagate-call")

    def _start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _execute(self, job: Job, until: float | None) -> None:
        try:
            async with self._limit(job.key):
                if until is None or clock.now() < until:
                    await self._call(job)
                else:
                    job.end(redis.TimeoutError("no connection was free in time"))
        except asyncio.CancelledError:  # the loop ends
            if not job.is_done:
                job.end(redis.ConnectionError("the event loop has ended"))
            raise

    def _limit(self, key: str) -> asyncio.Semaphore:
        """Limits the calls to the node that has the key."""
        node = self.node(key)
        return self._limits.get(node) or self._limits.setdefault(node, asyncio.Semaphore(CONNECTIONS))

    async def _call(self, job: Job) -> None:
        client = self.own()
        try:
            if self._calls.is_plain:
                await self._calls.run(job, client)
            else:
                job.read(await converse(await self._ask(client, job.key), job.commands))
                self._calls.replaced()
        except Exception as error:
            if failures.is_retried(error) and error is not LATE:
                if self.has_answered and not self._calls.is_plain:
                    self._calls.broke()
                self._calls.failed(error)
                self.failed(client, error)
                self._refresh(client)
            job.end(error)
        else:
            job.end()

    async def _ask(self, client: Any, key: str) -> Callable[..., Any]:
        """The function that sends a command.

        After an error of one node, redis-py lets the calls to all nodes wait until it has read the slots anew, perhaps from the
        same node. So the calls go to the node itself, and redis-py only follows the slots that have moved.
        """
        if not self.is_cluster:
            return client.execute_command  # type: ignore[no-any-return]
        await client.initialize()
        node = client.get_node_from_key(key)
        if node is None:
            return client.execute_command  # type: ignore[no-any-return]

        async def ask(*command: Any) -> Any:
            try:
                return await node.execute_command(*command)
            except (redis.exceptions.MovedError, redis.exceptions.AskError):
                return await client.execute_command(*command)

        return ask

    def _refresh(self, client: Any) -> None:
        """Reads in the background which node has which slots."""
        if self.is_cluster and self._own is client and self._refreshing is None and not self.is_closed:
            self._refreshing = self._start(self._read_slots(client), "luagate-slots")

    async def _read_slots(self, client: Any) -> None:
        try:
            await client.nodes_manager.initialize()
        except Exception:  # no node has answered: the next call begins with the nodes of the caller's client
            if self._own is client:
                self._own = None
        finally:
            self._refreshing = None

    def post(self, posted: Posted) -> bool:
        return self._calls.post(posted)

    def notify(self, held: Held) -> None:
        self._loop.call_soon(Agenda.tell, held)

    def listen(self, inbox: Inbox) -> None:
        if inbox not in self._listeners and not self.is_closed:
            self._listeners[inbox] = self._start(self._listen(inbox), "luagate-inbox")

    async def _listen(self, inbox: Inbox) -> None:
        steps = inbox.listen(partial(self.connect, inbox))
        try:
            step = next(steps)
            while True:
                target, name, *arguments = step
                try:
                    if name == "pause":
                        result = await asyncio.sleep(*arguments)
                    else:
                        result = getattr(target, "aclose" if name == "close" else name)(*arguments)
                        result = await result if inspect.isawaitable(result) else result
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration:
            pass
        finally:
            steps.close()
            self._listeners.pop(inbox, None)
            if inbox.subscription:
                await inbox.subscription.aclose()

    async def close(self) -> None:
        self.end_all()
        self._calls.read_posted()
        if self._agenda:
            await asyncio.wait([self._agenda], timeout=CLEAN_UP)
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._calls.close()
        if self._own is not None:
            with suppress(Exception):
                await self._own.aclose()

    def leave(self) -> None:
        """The loop has ended, or belongs to the parent of this process: its connections are no longer used."""
        self.is_closed = True


class _Mailbox:
    """A queue of events for one task."""

    def __init__(self) -> None:
        self._events: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put_nowait(self, event: Any) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self, seconds: float) -> Any:
        """The next event, or None if no event comes within this time."""
        if not self._events:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(max(0, seconds), self._wake) if seconds < math.inf else None
            try:
                await self._waiter
            finally:
                if timer:
                    timer.cancel()
        return self._events.popleft() if self._events else None


async def _run(steps: Steps[T], mailbox: _Mailbox) -> T:
    try:
        seconds = next(steps)
        while True:
            seconds = steps.send(await mailbox.get(seconds))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
