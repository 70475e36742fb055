"""What a client does in the background: it renews permits, reports losses, and releases what was given up.

`Agenda.loop` is a generator like an operation, see `operation`. No lock is taken: other threads, signal handlers and finalizers
change the dictionaries, each by one step that Python does not interrupt. Only the loop uses the other parts. A step takes about
the same time with many permits as with few.
"""

import heapq
import itertools
import logging
import math
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from luagate import clock
from luagate.errors import LuagateError
from luagate.held import Held
from luagate.operation import CLEAN_UP, Job, Steps
from luagate.settings import Settings

AT_ONCE = 8  # the most calls that run at the same time, to one node
LATE = 1  # seconds: a call that was not answered may reach the server late, so its id is released again after this time
LOG = logging.getLogger("luagate")
LONGEST_SLEEP = 1  # seconds, while a permit is kept: a timer stops while the machine is suspended, and its lease goes on
WAKE = object()  # an event: something is due earlier than before
CLOSE = object()  # an event: finish, and end


class Release:
    """A release that is repeated until the server has answered, or until nothing can be held any more."""

    def __init__(self, settings: Settings, id: str, until: float, is_unsure: bool) -> None:
        self.settings, self.id, self.until = settings, id, until
        self.at = 0.0  # the time of the next attempt
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


class Due:
    """The calls to one node that are due, and the number of those that run. A node that does not answer delays no other one."""

    def __init__(self) -> None:
        self.releases: deque[Release] = deque()
        self.renewals: deque[Held] = deque()
        self.running = 0


class Agenda:
    """The held permits of a client, and its releases in the background."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.mailbox = session.mailbox()
        self._kept: dict[Held, None] = {}
        self._releases: dict[Release, None] = {}  # those whose next attempt has not begun
        self._planned: dict[Held | Release, None] = {}  # those whose time has changed
        self._times: list[tuple[float, int, Held | Release]] = []  # a heap; those that have another time by now are ignored
        self._numbers = itertools.count()
        self._due: dict[tuple[str, int] | None, Due] = {}  # by node
        self._running: dict[Job, tuple[Held | Release, float, Due]] = {}  # what a call is for, when it began, and its node
        self._awaited: dict[Job, list[Release]] = {}  # the call that must end before these releases
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
        self._plan(held, self._renewal(held) if held.auto_renew and at < math.inf else at)

    def is_renewing(self, held: Held) -> bool:
        """Whether a renewal of the permit has no answer yet."""
        return any(item is held for item, *_ in list(self._running.values()))

    def remove(self, held: Held) -> None:
        held.watch = None
        self._kept.pop(held, None)
        self._planned.pop(held, None)

    def release(self, release: Release, job: Job | None) -> None:
        """Releases an id, but not while an earlier call of this id still runs."""
        due = [release]
        if job and not job.is_done:
            self._awaited.setdefault(job, []).append(release)
            job.mailbox = self.mailbox
            if not job.is_done:  # otherwise it may have used the other mailbox
                return
            due += self._awaited.pop(job, [])
        for one in due:
            self._attempt(one, clock.now())

    def is_due(self, release: Release | None) -> bool:
        """Whether it is to be sent, and no attempt runs."""
        return release in self._releases

    def take(self, release: Release | None) -> bool:
        """The caller makes the next attempt, if none runs."""
        return self._releases.pop(release, True) is None  # type: ignore[arg-type]

    def failed(self, release: Release, error: Exception) -> None:
        """An attempt has failed."""
        now = clock.now()
        if now + release.pause < release.until:
            if not release.is_done and release.pause < 0.1:
                LOG.warning("%s: %s was not released; the release is repeated: %s", release.settings.key, release.id, error)
            self._attempt(release, now + release.pause)
            release.pause = min(2 * release.pause, 2)
        else:
            LOG.warning("%s: %s was not released; its lease ends: %s", release.settings.key, release.id, error)
            release.is_done = True

    def release_again(self, held: Held) -> None:
        """Releases an id once more: an earlier call of it was not answered, and may reach the server after the release."""
        now = clock.now()
        self._attempt(Release(held.settings, held.id, now + LATE + held.settings.first_lease_ms / 1000, False), now + LATE)

    def _attempt(self, release: Release, at: float) -> None:
        """The next attempt to release begins at this time."""
        self._releases[release] = None
        self._plan(release, at)

    def _plan(self, item: Held | Release, at: float) -> None:
        """The loop looks at it at this time."""
        item.at = at
        self._planned[item] = None  # after the time is set: now the loop may read it
        if at < self._sleeps_until:
            self.mailbox.put_nowait(WAKE)

    @staticmethod
    def _renewal(held: Held) -> float:
        """When a third of the time that is left is over; rounded, so that renewals at nearly the same time begin together."""
        lease = held.lease_ms / 1000
        at, grid = clock.now() + min(held.remaining, lease) / 3, lease / 100
        return at // grid * grid

    # --- In the background ---

    def loop(self) -> Steps[None]:
        """Does what is due, until it is closed."""
        while not self._is_over():
            self._sleeps_until = math.inf  # before it is computed: a change that comes meanwhile must wake this loop
            at = self._sleeps_until = self._next()
            now = clock.now()
            event = yield (min(at, now + LONGEST_SLEEP) if self._kept else at) - now
            while self.freed:
                self.remove(self.freed.popleft().held[0])
            if event is CLOSE:
                self._ends_at = clock.now() + CLEAN_UP
                self._kept.clear()
                for release in list(self._releases):
                    if release.is_done:
                        self._releases.pop(release, None)
            elif isinstance(event, Job):
                self._ended(event)
            elif isinstance(event, Watch) and event.is_entered:
                self._abandoned(event.held)
            self._look()
            self._start()

    def _is_over(self) -> bool:
        if self._ends_at == math.inf:
            return False
        session = self.session
        is_busy = session.operations or session.posted or self._releases or self._running or self._awaited
        return not is_busy or clock.now() >= self._ends_at

    def _next(self) -> float:
        """The time of the next look."""
        while self._planned:
            try:
                item, _ = self._planned.popitem()
            except KeyError:  # it was removed meanwhile
                break
            if item.at < math.inf:
                heapq.heappush(self._times, (item.at, next(self._numbers), item))
        if len(self._times) > 2 * (len(self._kept) + len(self._releases)) + 100:
            self._times = [entry for entry in self._times if self._is_planned(entry[2], entry[0])]
            heapq.heapify(self._times)
        return min(self._ends_at, self._times[0][0] if self._times else math.inf)

    def _is_planned(self, item: Held | Release, at: float) -> bool:
        return item.at == at and (item in self._kept or item in self._releases)

    def _look(self) -> None:
        """Finds what is due. Reports the permits whose leases have ended."""
        now = clock.now()
        while self._times and self._times[0][0] <= now:
            at, _, item = heapq.heappop(self._times)
            if not self._is_planned(item, at):
                continue
            if isinstance(item, Release):
                self._due_at(item).releases.append(item)
            elif not item.remaining:
                self.lose(item)
            else:
                self._plan(item, item.deadline)
                self._due_at(item).renewals.append(item)

    def _due_at(self, item: Held | Release) -> Due:
        return self._due.setdefault(self.session.node(item.settings.key), Due())

    def _start(self) -> None:
        """Begins the calls that are due: releases first, since other callers wait for them."""
        now = clock.now()
        for node, due in list(self._due.items()):
            while due.running < AT_ONCE:
                if due.releases:
                    release = due.releases.popleft()
                    if self.take(release):  # otherwise it was in the list twice, or a call has sent it
                        self._call(release, now, due)
                elif due.renewals:
                    held = due.renewals.popleft()
                    if held in self._kept:  # otherwise it was removed meanwhile
                        self._call(held, now, due)
                else:
                    break
            if not due.running:
                del self._due[node]

    def _call(self, item: Held | Release, now: float, due: Due) -> None:
        scripts, settings = self.session.scripts, item.settings
        if isinstance(item, Held):
            script = scripts["semaphore/refresh"]
            argv = script.argv(id=item.id, lease_ms=item.lease_ms)
        else:
            script = scripts["semaphore/release"]
            argv = script.argv(id=item.id, keep=0)
        job = self.session.start(script, settings.keys, argv, self.mailbox)
        self._running[job] = (item, now, due)
        due.running += 1

    def _ended(self, job: Job) -> None:
        if releases := self._awaited.pop(job, None):
            for release in releases:
                release.is_unsure |= job.error is not None
                self._attempt(release, clock.now())
        elif job in self._running:
            item, began, due = self._running.pop(job)
            due.running -= 1
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
            self.session.counts.renewed.add()
            return self.changed(held)
        LOG.warning("%s: the lease of %s was not renewed, which is repeated: %s", held.settings.key, held.id, job.error)
        pause = min(max(held.lease_ms / 10_000, 0.005), 1)
        self._plan(held, min(clock.now() + pause, held.deadline))

    def _released(self, release: Release, job: Job) -> None:
        if job.error is None and not release.is_unsure:
            release.is_done = True
        elif job.error is None:
            release.is_unsure, release.is_done = False, True
            if self._ends_at == math.inf:
                self._attempt(release, clock.now() + LATE)
        else:
            self.failed(release, job.error)
        if release.is_done and release.mailbox:
            release.mailbox.put_nowait(WAKE)

    def _abandoned(self, all: list[Held]) -> None:
        """Releases the permits of a block that has ended without a release."""
        now = clock.now()
        for held in all:
            if remaining := held.remaining:  # otherwise the interrupted release has begun, and is repeated
                self.remove(held)
                held.end()
                self._attempt(Release(held.settings, held.id, now + remaining, False), now)

    def lose(self, held: Held) -> None:
        """The permit is lost."""
        if not held.is_over:
            held.count_loss()
        held.end()
        if held not in self._kept:
            return
        self.remove(held)
        LOG.warning("%s: the permit %s is lost", held.settings.key, held.id)
        if held.on_lost:
            self.session.notify(held)

    def lost_at_end(self, held: Held, permit: Any) -> None:
        """The release at the end of its block has found that the permit was lost."""
        held.count_loss()
        LOG.warning("%s: the permit %s was lost before its block ended", held.settings.key, held.id)
        if on_lost := held.settings.on_lost:
            held.on_lost = lambda _: on_lost(permit)  # the program may have no reference to the permit any more
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
