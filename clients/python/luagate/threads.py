"""The API for threads. Threads may share all objects."""

import math
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable

import redis
from luagate import several_steps, steps
from luagate.api import Gate, SeveralValues, Values, wants_of
from luagate.inbox import Inbox
from luagate.scripts import text
from luagate.worker import Worker


class Permit(Values):
    """A held permit. Leaving the `with` block releases it."""

    def refresh(self) -> None:
        """Starts the lease anew. Raises Lost."""
        self.gate.run(steps.refresh(self.gate, self.held))

    def release(self) -> bool:
        """Releases the permit and returns whether it was still held. A second call does no harm."""
        return self.gate.run(steps.release(self.gate, self.held))

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, *_) -> None:
        self.release()


class Permits(SeveralValues):
    """Held permits of several semaphores. Leaving the `with` block releases all."""

    def __init__(self, gate, held):
        super().__init__([gate.keep(Permit(gate, one)) for one in held])
        self.gate, self.held = gate, held

    def refresh(self) -> None:
        """Refreshes all, each with the lease of its semaphore. Raises Lost if one of them is lost."""
        self.gate.run(several_steps.refresh_each(self.gate, self.held))

    def release(self) -> bool:
        """Releases all and returns whether all were still held. A second call does no harm."""
        return self.gate.run(several_steps.release_each(self.gate, self.held))

    def __enter__(self) -> "Permits":
        return self

    def __exit__(self, *_) -> None:
        self.release()


class Semaphore:
    """A counting semaphore or, with a limit of 1, a lock. Nothing is re-entrant."""

    def __init__(self, gate, settings):
        self.gate, self.settings = gate, settings

    def try_acquire(self, permits: int = 1) -> Permit | None:
        """Returns permits at once, or None. Does not wait."""
        held = self.gate.run(steps.try_acquire(self.gate, self.settings, permits))
        return held and self.gate.keep(Permit(self.gate, held))

    def acquire(self, permits: int = 1, timeout: float = math.inf) -> Permit:
        """Waits in line for permits: first come, first served. Blocks. Raises TimedOut, LineFull or Revoked."""
        end = time.monotonic() + timeout
        held = self.gate.run(steps.acquire(self.gate, self.settings, permits, timeout, end))
        return self.gate.keep(Permit(self.gate, held))


class Several:
    """Grants permits of several semaphores, all or none."""

    def __init__(self, gate, wants):
        self.gate, self.wants = gate, wants_of(gate, wants)

    def try_acquire(self) -> Permits | None:
        """Returns permits of all at once, or None. The names must share a group, as in `{market}:user:7` and `{market}:total`.

        Ignores `head_start`.
        """
        held = self.gate.run(several_steps.try_acquire_several(self.gate, self.wants))
        return held and Permits(self.gate, held)

    def acquire(self, timeout: float = math.inf) -> Permits:
        """Waits in line for permits of all, one semaphore after the other: by limit, smallest first, then by key. Blocks.

        Permits that are already held are renewed meanwhile. Raises what `Semaphore.acquire` raises, and Lost. After an
        exception nothing stays held.
        """
        end = time.monotonic() + timeout
        return Permits(self.gate, self.gate.run(several_steps.acquire_several(self.gate, self.wants, timeout, end)))


class Luagate(Gate):
    """Semaphores and mutexes on one server. `client`: a `redis.Redis`, which should have a `socket_timeout`."""

    mailbox = queue.SimpleQueue

    def __init__(self, client: redis.Redis, prefix: str = "luagate", **options):
        self._inbox, self._opening, self._is_closed = None, threading.Lock(), False
        super().__init__(client, prefix, **options)
        keeper = self.keeper
        self._renewal = Worker("luagate-renewal", lambda: keeper.next_renewal, lambda: self.run(keeper.renew()))
        self._losses = Worker("luagate-losses", lambda: keeper.next_loss, keeper.report)  # waits for no reply

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
        """At most `limit` permits are held at a time. All durations are in seconds.

        A permit has a lease of 30 s, which is renewed in the background until the permit is released. With `lease` it ends
        after this time, unless `auto_renew` is set or `refresh` is called.
        If `max_waiting` or more callers wait in line, `acquire` raises LineFull and does not wait. 0: no bound.
        A permit that is released earlier than `at_least` seconds after its grant stays in use until then. The lease is not
        shorter than `at_least`.
        With `head_start` (0 to a day) a call joins the line as if it had come that much earlier. Only calls that come within
        the head start after a waiter can overtake it.
        `on_lost(permit)` is called once on a background thread if the permit is lost, not if it is released.
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

    def close(self) -> None:
        """Ends the subscription and the renewal. Permits stay held until they are released or their leases end."""
        self._is_closed = True
        self._renewal.close()
        self._losses.close()

    def __enter__(self) -> "Luagate":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # --- Runs the steps ---

    def run(self, generator):
        result = None
        try:
            step = next(generator)
            while True:
                name, *arguments = step
                try:
                    result = getattr(self, f"_{name}")(*arguments)
                except BaseException as error:
                    step = generator.throw(error)
                else:
                    step = generator.send(result)
        except StopIteration as end:
            return end.value

    def _script(self, name, keys, argv):
        return self.scripts.run[name](keys, argv)

    def _scripts(self, name, calls):
        with self.client.pipeline(transaction=False) as pipeline:
            for keys, argv in calls:
                pipeline.evalsha(self.scripts.run[name].sha, len(keys), *keys, *argv)
            return pipeline.execute(raise_on_error=False)

    def _load(self, name):
        self.client.script_load(self.scripts.run[name].script)

    def _sleep(self, seconds):
        time.sleep(seconds)

    def _receive(self, request, seconds):
        try:
            return request.events.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return None

    def _finish(self, generator, _error):
        self.run(generator)

    def _open_inbox(self, end):
        """The inbox: one subscription, which the first waiter opens. Its thread ends when the gate is closed."""
        if not self._opening.acquire(timeout=min(max(0, end - time.monotonic()), threading.TIMEOUT_MAX)):
            raise redis.TimeoutError("the subscription to grant messages was not established in time")
        try:
            if self._inbox is None:
                inbox = Inbox(f"{self.prefix}:inbox:{uuid.uuid4()}")
                subscription = self.client.pubsub()
                subscription.subscribe(inbox.channel)
                while subscription.get_message(timeout=steps.RECHECK) is None:
                    pass
                self.client.publish(inbox.channel, "")  # raises if an ACL forbids it; the scripts would only send no messages
                [(_, listeners)] = self.client.pubsub_numsub(inbox.channel)
                inbox.is_heard = listeners > 0  # a proxy can keep messages away
                thread = threading.Thread(target=self._listen, args=(inbox, subscription), name="luagate-inbox", daemon=True)
                thread.start()
                self._inbox = inbox
            return self._inbox
        finally:
            self._opening.release()

    # --- Threads ---

    def _listen(self, inbox, subscription):
        while not self._is_closed:
            try:
                message = subscription.get_message(timeout=1)
            except steps.LOST_REPLY:
                time.sleep(steps.PAUSES[0])  # the next get_message connects and subscribes again
                continue
            if message is None:
                continue
            if message["type"] == "subscribe":
                inbox.subscribed_again()
            elif late := inbox.deliver(text(message["data"])):
                self.run(late.abandon())
        subscription.close()

    def wake(self, renewal, loss):
        self._renewal.wake(renewal)
        self._losses.wake(loss)
