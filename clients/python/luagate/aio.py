"""The API for asyncio. All objects belong to one event loop.

    gate = Luagate(redis.asyncio.Redis(socket_timeout=2))
    async with await gate.semaphore("market:account:17", 5).acquire(timeout=2):
        ...  # at most five at a time, first come, first served

Every method can be cancelled: a cancelled call leaves no permit and no place in line. Its release is finished in the background.
"""

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Iterable

import redis.asyncio
from luagate import several_steps, steps
from luagate.api import Gate, SeveralValues, Values, wants_of
from luagate.errors import Invalid, LineFull, Lost, LuagateError, Revoked, TimedOut
from luagate.inbox import Inbox
from luagate.scripts import text

__all__ = [
    "Invalid",
    "LineFull",
    "Lost",
    "Luagate",
    "LuagateError",
    "Permit",
    "Permits",
    "Revoked",
    "Semaphore",
    "Several",
    "TimedOut",
]


FINISHING = "luagate-call"  # the name of tasks that `close` waits for


class Permit(Values):
    """A held permit. Leaving the `async with` block releases it."""

    async def refresh(self) -> None:
        """Starts the lease anew. Raises Lost."""
        await self.gate.run(steps.refresh(self.gate, self.held))

    async def release(self) -> bool:
        """Releases the permit and returns whether it was still held. If this is cancelled, the release is still sent."""
        return await self.gate.to_the_end(steps.release(self.gate, self.held))

    async def __aenter__(self) -> "Permit":
        return self

    async def __aexit__(self, *_) -> None:
        await self.release()


class Permits(SeveralValues):
    """Held permits of several semaphores. Leaving the `async with` block releases all."""

    def __init__(self, gate, held):
        super().__init__([gate.keep(Permit(gate, one)) for one in held])
        self.gate, self.held = gate, held

    async def refresh(self) -> None:
        """Refreshes all, each with the lease of its semaphore. Raises Lost if one of them is lost."""
        await self.gate.run(several_steps.refresh_each(self.gate, self.held))

    async def release(self) -> bool:
        """Releases all and returns whether all were still held. If this is cancelled, the releases are still sent."""
        return await self.gate.to_the_end(several_steps.release_each(self.gate, self.held))

    async def __aenter__(self) -> "Permits":
        return self

    async def __aexit__(self, *_) -> None:
        await self.release()


class Semaphore:
    """A counting semaphore or, with a limit of 1, a lock. Nothing is re-entrant."""

    def __init__(self, gate, settings):
        self.gate, self.settings = gate, settings

    async def try_acquire(self, permits: int = 1) -> Permit | None:
        """Returns permits at once, or None. Does not wait in line."""
        held = await self.gate.run(steps.try_acquire(self.gate, self.settings, permits))
        return held and self.gate.keep(Permit(self.gate, held))

    async def acquire(self, permits: int = 1, timeout: float = math.inf) -> Permit:
        """Waits in line for permits: first come, first served. Raises TimedOut, LineFull or Revoked."""
        end = time.monotonic() + timeout
        held = await self.gate.run(steps.acquire(self.gate, self.settings, permits, timeout, end))
        return self.gate.keep(Permit(self.gate, held))


class Several:
    """Grants permits of several semaphores, all or none."""

    def __init__(self, gate, wants):
        self.gate, self.wants = gate, wants_of(gate, wants)

    async def try_acquire(self) -> Permits | None:
        """Returns permits of all at once, or None. The names must share a group, as in `{market}:user:7` and `{market}:total`.

        Ignores `head_start`.
        """
        held = await self.gate.run(several_steps.try_acquire_several(self.gate, self.wants))
        return held and Permits(self.gate, held)

    async def acquire(self, timeout: float = math.inf) -> Permits:
        """Waits in line for permits of all, one semaphore after the other: by limit, smallest first, then by key.

        Permits that are already held are renewed meanwhile. Raises what `Semaphore.acquire` raises, and Lost. After an
        exception nothing stays held.
        """
        end = time.monotonic() + timeout
        return Permits(self.gate, await self.gate.run(several_steps.acquire_several(self.gate, self.wants, timeout, end)))


class Luagate(Gate):
    """Semaphores and mutexes on one server. `client`: a `redis.asyncio.Redis`, which should have a `socket_timeout`."""

    mailbox = asyncio.Queue

    def __init__(self, client: redis.asyncio.Redis, prefix: str = "luagate", **options):
        self._inbox, self._opening, self._is_closed = None, None, False
        self._tasks, self._calls = set(), {}  # the calls that run, by id
        super().__init__(client, prefix, **options)
        self._renewal = _Worker(lambda: self.keeper.next_renewal, lambda: self.run(self.keeper.renew()), self._start)
        self._losses = _Worker(lambda: self.keeper.next_loss, self._report, self._start)  # waits for no reply

    def semaphore(
        self,
        name: str,
        limit: int,
        lease: float | None = None,
        *,
        auto_renew: bool = False,
        max_waiting: int = 0,
        at_least: float = 0,
        head_start: float = 0,
        on_lost: Callable[[Permit], object] | None = None,
    ) -> Semaphore:
        """At most `limit` permits are held at a time. The settings are those of `luagate.Luagate.semaphore`.

        `on_lost(permit)` is called once in the event loop if the permit is lost, not if it is released.
        """
        settings = self.settings("semaphore", name, limit, lease, auto_renew, max_waiting, at_least, head_start, on_lost)
        return Semaphore(self, settings)

    def mutex(
        self,
        name: str,
        lease: float | None = None,
        *,
        auto_renew: bool = False,
        max_waiting: int = 0,
        at_least: float = 0,
        head_start: float = 0,
        on_lost: Callable[[Permit], object] | None = None,
    ) -> Semaphore:
        """A lock: a semaphore with one permit, with the same settings."""
        settings = self.settings("mutex", name, 1, lease, auto_renew, max_waiting, at_least, head_start, on_lost)
        return Semaphore(self, settings)

    def several(self, wants: Iterable[tuple[Semaphore, int]]) -> Several:
        """Permits of several semaphores together, all or none: `[(semaphore, permits), ...]`."""
        return Several(self, wants)

    async def close(self) -> None:
        """Finishes pending releases, and ends the subscription and the renewal. Permits end with their leases."""
        self._is_closed = True
        while self._tasks:
            for task in self._tasks:
                if task.get_name() != FINISHING:
                    task.cancel()
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> "Luagate":
        return self

    async def __aexit__(self, *_) -> None:
        await self.close()

    # --- Runs the steps ---

    async def run(self, generator):
        result = None
        try:
            step = next(generator)
            while True:
                name, *arguments = step
                try:
                    result = await getattr(self, f"_{name}")(*arguments)
                except BaseException as error:
                    step = generator.throw(error)
                else:
                    step = generator.send(result)
        except StopIteration as end:
            return end.value

    def to_the_end(self, generator):
        """Runs the steps in a task, which goes on if the caller is cancelled."""
        return asyncio.shield(self._start(self.run(generator), FINISHING))

    def _start(self, coroutine, name):
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)  # the loop itself keeps no strong reference
        task.add_done_callback(self._tasks.discard)
        return task

    async def _script(self, name, keys, argv):
        # A cancelled call may still reach the server. So it is finished, and the next call for its id waits for that.
        id = argv[0]
        if earlier := self._calls.get(id):
            await asyncio.wait([earlier])
        call = self._calls[id] = self._start(self.scripts.run[name](keys, argv), FINISHING)
        call.add_done_callback(lambda _: self._calls.pop(id, None))
        return await asyncio.shield(call)

    async def _scripts(self, name, calls):
        async with self.client.pipeline(transaction=False) as pipeline:
            for keys, argv in calls:
                pipeline.evalsha(self.scripts.run[name].sha, len(keys), *keys, *argv)
            return await pipeline.execute(raise_on_error=False)

    async def _load(self, name):
        await self.client.script_load(self.scripts.run[name].script)

    async def _sleep(self, seconds):
        await asyncio.sleep(seconds)

    async def _receive(self, request, seconds):
        try:
            return await asyncio.wait_for(request.events.get(), None if seconds == math.inf else seconds)
        except asyncio.TimeoutError:
            return None

    async def _finish(self, generator, error):
        finishing = self.to_the_end(generator)
        if not isinstance(error, asyncio.CancelledError):
            await finishing

    async def _open_inbox(self, end):
        """The inbox: one subscription, which the first waiter opens. Its task ends when the gate is closed."""
        if self._inbox is None:
            if self._opening is None or self._opening.done():  # done: it failed
                inbox = Inbox(f"{self.prefix}:inbox:{uuid.uuid4()}")
                self._opening = self._start(self._subscribe(inbox), "luagate-subscribe")
                self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # it is read here
            left = None if end == math.inf else max(0, end - time.monotonic())
            try:
                await asyncio.wait_for(asyncio.shield(self._opening), left)
            except asyncio.TimeoutError:
                raise redis.TimeoutError("the subscription to grant messages was not established in time") from None
        return self._inbox

    async def _subscribe(self, inbox):
        subscription = self.client.pubsub()
        try:
            await subscription.subscribe(inbox.channel)
            while await subscription.get_message(timeout=steps.RECHECK) is None:
                pass
            await self.client.publish(inbox.channel, "")  # raises if an ACL forbids it; the scripts would only send no messages
            [(_, listeners)] = await self.client.pubsub_numsub(inbox.channel)
        except BaseException:
            await subscription.aclose()
            raise
        inbox.is_heard = listeners > 0  # a proxy can keep messages away
        self._start(self._listen(inbox, subscription), "luagate-inbox")
        self._inbox = inbox

    # --- Tasks ---

    async def _listen(self, inbox, subscription):
        try:
            while True:
                try:
                    message = await subscription.get_message(timeout=60)
                except steps.LOST_REPLY:
                    await asyncio.sleep(steps.PAUSES[0])  # the next get_message connects and subscribes again
                    continue
                if message is None:
                    continue
                if message["type"] == "subscribe":
                    inbox.subscribed_again()
                elif late := inbox.deliver(text(message["data"])):
                    self.to_the_end(late.abandon())
        finally:
            await subscription.aclose()

    async def _report(self):
        self.keeper.report()

    def wake(self, renewal, loss):
        if not self._is_closed:
            self._renewal.wake(renewal)
            self._losses.wake(loss)


class _Worker:
    """Runs `work` whenever `next_time`, by `time.monotonic`, is over. `start` starts its task with the first `wake`."""

    def __init__(self, next_time, work, start):
        self._next_time, self._work, self._start = next_time, work, start
        self._changed, self._sleeps_until, self._task = asyncio.Event(), -math.inf, None

    def wake(self, at):
        """Something is due at this time."""
        self._task = self._task or self._start(self._run(), "luagate-worker")
        if at < self._sleeps_until:
            self._changed.set()

    async def _run(self):
        while True:
            self._changed.clear()
            left = self._next_time() - time.monotonic()
            if left <= 0:
                await self._work()
                continue
            self._sleeps_until = time.monotonic() + left
            try:
                await asyncio.wait_for(self._changed.wait(), None if left == math.inf else left)
            except asyncio.TimeoutError:
                pass
            self._sleeps_until = -math.inf
