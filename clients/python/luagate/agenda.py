"""What a client does in the background: it renews permits, reports losses, and releases what was given up.

`Agenda.loop` is a generator like an operation, see `operation`. No lock is taken: other threads, signal handlers and finalizers
change the dictionaries, each by one step that Python does not interrupt.
"""

import logging
import math
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from luagate import failures
from luagate.errors import LuagateError
from luagate.held import Held
from luagate.operation import CLEAN_UP, Job, Steps
from luagate.settings import Settings

AT_ONCE = 8  # the most calls that run at the same time
LATE = 1  # seconds: a call that was not answered may reach the server late, so its id is released again after this time
LOG = logging.getLogger("luagate")
WAKE = object()  # an event: something is due earlier than before
CLOSE = object()  # an event: finish, and end


class Release:
    """A release that is repeated until the server has answered, or until nothing can be held any more."""

    def __init__(self, settings: Settings, id: str, until: float, is_unsure: bool) -> None:
        self.settings, self.id, self.until = settings, id, until
        self.is_unsure = is_unsure  # an earlier call of this id was not answered
        self.pause = 0.05  # seconds before the next attempt
        self.is_done = False
        self.mailbox: Any = None  # of the operation that waits for it


class Watch(weakref.ref[Any]):
    """Notices that an object is freed which may need these permits.

    The callback is a method that no code in Python implements. So it takes no lock, and an interrupt cannot end it.
    """

    held: list[Held]
    is_entered = False  # for the end of a `with` block: the block has begun

    @staticmethod
    def of(watched: Any, held: list[Held], callback: Callable[["Watch"], object]) -> "Watch":
        watch = Watch(watched, callback)
        watch.held = held
        return watch


class Agenda:
    """The held permits of a client, and its releases in the background."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.mailbox = session.mailbox()
        self._kept: dict[Held, None] = {}
        self._renewals: dict[Held, float] = {}  # the time of the next renewal
        self._releases: dict[Release, float] = {}  # the time of the next attempt
        self._running: dict[Job, tuple[Held | Release, float]] = {}  # what a call is for, and when it began
        self._awaited: dict[Job, Release] = {}  # the call that must end before this release
        self.freed: deque[Watch] = deque()  # of permits that are no longer referenced
        self._sleeps_until = math.inf
        self._ends_at = math.inf

    # --- Called by operations, finalizers and signal handlers ---

    def add(self, held: Held) -> None:
        """From now on, renews the permit if it asks for that, and reports its loss."""
        held.keeper = self
        self._kept[held] = None
        self.changed(held)

    def changed(self, held: Held) -> None:
        """The end of its lease has changed."""
        if held not in self._kept:
            return
        at = held.deadline
        if held.auto_renew and at < math.inf:
            at = self._renewals[held] = self._renewal(held)
        self._wake(at)

    def remove(self, held: Held) -> None:
        held.watch = None
        self._kept.pop(held, None)
        self._renewals.pop(held, None)

    def release(self, release: Release, job: Job | None) -> None:
        """Releases an id, but not while an earlier call of this id still runs."""
        at = time.monotonic()
        if job and not job.is_done:
            self._awaited[job] = release
            job.mailbox = self.mailbox
            if not job.is_done:  # otherwise it may have used the other mailbox
                return
            self._awaited.pop(job, None)
        self._releases[release] = at
        self._wake(at)

    def _wake(self, at: float) -> None:
        if at < self._sleeps_until:
            self.mailbox.put_nowait(WAKE)

    @staticmethod
    def _renewal(held: Held) -> float:
        """When a third of the time that is left is over; rounded, so that renewals at nearly the same time begin together."""
        lease = held.settings.lease_ms / 1000
        at, grid = time.monotonic() + min(held.remaining, lease) / 3, lease / 100
        return at // grid * grid

    # --- In the background ---

    def loop(self) -> Steps[None]:
        """Does what is due, until it is closed."""
        while not self._is_over():
            self._sleeps_until = math.inf  # before it is computed: a change that comes meanwhile must wake this loop
            at = self._sleeps_until = self._next()
            event = yield at - time.monotonic()
            while self.freed:
                self.remove(self.freed.popleft().held[0])
            if event is CLOSE:
                self._ends_at = time.monotonic() + CLEAN_UP
                self._kept.clear()
                self._renewals.clear()
                for release in list(self._releases):
                    if release.is_done:
                        self._releases.pop(release, None)
            elif isinstance(event, Job):
                self._ended(event)
            elif isinstance(event, Watch) and event.is_entered:
                self._abandoned(event.held)
            self._report()
            self._start()

    def _is_over(self) -> bool:
        if self._ends_at == math.inf:
            return False
        is_busy = self.session.operations or self._releases or self._running or self._awaited
        return not is_busy or time.monotonic() >= self._ends_at

    def _next(self) -> float:
        times = [self._ends_at, *(held.deadline for held in list(self._kept))]
        if len(self._running) < AT_ONCE:
            times += [*list(self._renewals.values()), *list(self._releases.values())]
        return min(times)

    def _start(self) -> None:
        now = time.monotonic()
        plans: list[dict[Any, Any]] = [self._releases, self._renewals]
        for plan in plans:
            for item, at in list(plan.items()):
                if len(self._running) >= AT_ONCE:
                    return
                if at <= now and plan.pop(item, None) is not None:  # otherwise it was removed meanwhile
                    self._call(item, now)

    def _call(self, item: Held | Release, now: float) -> None:
        scripts, settings = self.session.scripts, item.settings
        if isinstance(item, Held):
            script = scripts["semaphore/refresh"]
            argv = script.argv(id=item.id, lease_ms=settings.lease_ms)
        else:
            script = scripts["semaphore/release"]
            argv = script.argv(id=item.id, keep=0)
        try:
            job = self.session.start(script, settings.keys, argv, self.mailbox)
        except RuntimeError as error:  # no thread can be started at this moment
            LOG.warning("%s: a call in the background is repeated: %s", settings.key, error)
            plan: dict[Any, float] = self._renewals if isinstance(item, Held) else self._releases
            plan[item] = now + LATE
        else:
            self._running[job] = (item, now)

    def _ended(self, job: Job) -> None:
        if release := self._awaited.pop(job, None):
            release.is_unsure |= job.error is not None
            self._releases[release] = time.monotonic()
        elif job in self._running:
            item, began = self._running.pop(job)
            if isinstance(item, Held):
                self._renewed(item, job, began)
            else:
                self._released(item, job)

    def _renewed(self, held: Held, job: Job, asked: float) -> None:
        if held not in self._kept:
            return  # released meanwhile
        if job.error is None:
            if job.reply.word == "lost":
                return self.lose(held)
            held.refreshed(job.reply, asked)
            return self.changed(held)
        LOG.warning("%s: the lease of %s was not renewed, which is repeated: %s", held.settings.key, held.id, job.error)
        self._renewals[held] = time.monotonic() + min(max(held.settings.lease_ms / 10_000, 0.005), 1)
        if held not in self._kept:
            self._renewals.pop(held, None)

    def _released(self, release: Release, job: Job) -> None:
        now = time.monotonic()
        if job.error is None and not release.is_unsure:
            release.is_done = True
        elif job.error is None:
            release.is_unsure, release.is_done = False, True
            if self._ends_at == math.inf:
                self._releases[release] = now + LATE
        elif failures.is_retried(job.error) and now + release.pause < release.until:
            if not release.is_done and release.pause < 0.1:
                LOG.warning("%s: %s was not released; the release is repeated: %s", release.settings.key, release.id, job.error)
            self._releases[release] = now + release.pause
            release.pause = min(2 * release.pause, 2)
        else:
            LOG.warning("%s: %s was not released; its lease ends: %s", release.settings.key, release.id, job.error)
            release.is_done = True
        if release.is_done and release.mailbox:
            release.mailbox.put_nowait(WAKE)

    def _abandoned(self, all: list[Held]) -> None:
        """Releases the permits of a block that has ended without a release."""
        now = time.monotonic()
        for held in all:
            if remaining := held.remaining:  # otherwise the interrupted release has begun, and is repeated
                self.remove(held)
                held.end()
                self._releases[Release(held.settings, held.id, now + remaining, False)] = now

    def _report(self) -> None:
        """Reports the permits whose leases have ended."""
        for held in list(self._kept):
            if not held.remaining:
                self.lose(held)

    def lose(self, held: Held) -> None:
        """The permit is lost."""
        held.end()
        if held not in self._kept:
            return
        self.remove(held)
        LOG.warning("%s: the permit %s is lost", held.settings.key, held.id)
        if held.on_lost:
            self.session.notify(held)

    @staticmethod
    def tell(held: Held) -> None:
        """Calls `on_lost`."""
        try:
            if held.on_lost:
                held.on_lost(held)
        except LuagateError as error:
            LOG.warning("%s: on_lost failed for the permit %s: %s", held.settings.key, held.id, error)
        except Exception:
            LOG.exception("%s: on_lost failed for the permit %s", held.settings.key, held.id)
