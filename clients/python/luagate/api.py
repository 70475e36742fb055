"""The common part of the APIs for threads and for asyncio: settings, and the values of permits and semaphores."""

import logging
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from luagate import clients
from luagate.agenda import Watch
from luagate.counters import Counters, Counts
from luagate.errors import MOST, Invalid
from luagate.held import Held
from luagate.scripts import Scripts
from luagate.settings import Lease, Settings, check_label, check_number, check_prefix, milliseconds, refuse
from luagate.several_steps import Wants, check
from luagate.ticket import Ticket, given

END = "release at the end of a block"  # the name of the call
LOG = logging.getLogger("luagate")
S = TypeVar("S")  # the class of a semaphore
P = TypeVar("P")  # the class of a permit


class OfOneProcess:
    """Cannot be pickled or copied."""

    def __reduce__(self) -> NoReturn:
        instead = "one Luagate in each process, with the same names of semaphores"
        raise Invalid(f"pickle or copy: got {self!r}, which belongs to one process and its connections. Accepted: {instead}")


class RwLock(Generic[S]):
    """A lock for readers and writers: many readers, or one writer. Readers and writers wait in one line. Nothing is re-entrant.

    `read` and `write` have the calls of a mutex.
    """

    def __init__(self, read: S, write: S) -> None:
        self.read, self.write = read, write

    def __repr__(self) -> str:
        return f"RwLock({self.read!r}, {self.write!r})"


class Gate(OfOneProcess, Generic[S, P]):
    """The semaphores of one server. A subclass runs the operations."""

    semaphore_class: Any
    accepted: tuple[Any, Any, str]  # the kinds of `client`, those of the other API, and what to use for these
    _sessions: Any

    def __init__(
        self,
        client: Any,
        prefix: str = "luagate",
        *,
        call_timeout: float = 4,
        label: str | None = None,
        scripts: str | Path | None = None,
    ) -> None:
        clients.check(client, *self.accepted)
        self._sessions = {}
        self.client, self.prefix, self.label = client, check_prefix(prefix), check_label(label)
        self.call_timeout = milliseconds("call_timeout", call_timeout) / 1000
        self.scripts = Scripts(scripts)
        self.counts = Counts()
        self.is_closed = False

    def semaphore(
        self,
        name: str,
        limit: int,
        lease: Lease = None,
        *,
        auto_renew: bool = False,
        max_waiting: int = 0,
        at_least: float = 0,
        head_start: float = 0,
        on_lost: Callable[[P], object] | None = None,
        label: str | None = None,
        strict: bool = False,
    ) -> S:
        """At most `limit` permits (1 to 2147483647) are held at a time. All durations are in seconds. Sends nothing.

        A permit has a lease of 30 s, which is renewed in the background until the permit is released. With `lease` (0.001 to a
        hundred years) it ends after this time, unless `auto_renew` is set or `refresh` is called. With `lease=PERMANENT` it
        never ends.
        If `max_waiting` or more callers wait in line, `acquire` raises LineFull and does not wait. 0: no bound.
        A permit that is released earlier than `at_least` seconds after its grant stays in use until then. The lease is not
        shorter than `at_least`.
        With `head_start` (0 to a day) a call joins the line as if it had come that much earlier. Only calls that come within
        the head start after a waiter can overtake it.
        `on_lost(permit)` is called once if the permit is lost, not if it is released: on another thread, or in the event loop.
        `label` is the part of the ids before the `/`: 1 to 163 bytes without white space.
        With `strict` an acquire raises LimitMismatch if the limit in force is another one.
        Raises Invalid.
        """
        return self._semaphore(
            "semaphore", name, limit, 1, lease, auto_renew, max_waiting, at_least, head_start, on_lost, label, strict
        )

    def mutex(
        self,
        name: str,
        lease: Lease = None,
        *,
        auto_renew: bool = False,
        max_waiting: int = 0,
        at_least: float = 0,
        head_start: float = 0,
        on_lost: Callable[[P], object] | None = None,
        label: str | None = None,
        strict: bool = False,
    ) -> S:
        """A lock: a semaphore with one permit, with the same settings."""
        return self._semaphore(
            "mutex", name, 1, 1, lease, auto_renew, max_waiting, at_least, head_start, on_lost, label, strict
        )  # fmt: skip

    def rwlock(
        self,
        name: str,
        lease: Lease = None,
        *,
        auto_renew: bool = False,
        max_waiting: int = 0,
        at_least: float = 0,
        head_start: float = 0,
        on_lost: Callable[[P], object] | None = None,
        label: str | None = None,
        strict: bool = False,
    ) -> RwLock[S]:
        """A lock for readers and writers, with the same settings as a semaphore."""
        more = lease, auto_renew, max_waiting, at_least, head_start, on_lost, label, strict
        read, write = (self._semaphore("rwlock", name, MOST, unit, *more) for unit in (1, MOST))
        return RwLock(read, write)

    def _semaphore(self, *settings: Any) -> S:
        return self.semaphore_class(self, Settings(self.prefix, *settings))  # type: ignore[no-any-return]

    def counters(self) -> Counters:
        """What has happened since this gate was made, in this process. Sends nothing."""
        return self.counts.read()

    def keep(self, permit: Any, agenda: Any) -> Any:
        """Renews the permit in the background and reports its loss, until it is released or no longer referenced."""
        held = permit._held
        held.keeper = agenda
        if not held.settings.is_kept:
            return permit
        if on_lost := held.settings.on_lost:
            itself = weakref.ref(permit)
            held.on_lost = lambda _: (permit := itself()) and on_lost(permit)
        held.watch = Watch.of(permit, [held], agenda.freed.append)
        agenda.add(held)
        return permit

    def __repr__(self) -> str:
        return f"<luagate {self.prefix!r}{', closed' if self.is_closed else ''}>"


class SemaphoreValues(OfOneProcess):
    """The settings of a semaphore."""

    def __init__(self, gate: Any, settings: Settings) -> None:
        self._gate, self._settings = gate, settings

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        return self._settings.name

    def _check_limit(self, limit: object) -> int:
        number = check_number("limit", limit, 1)
        if self._settings.kind != "semaphore":
            raise Invalid(f"resize: got a {self._settings.kind}. Accepted: a semaphore")
        return number

    def __repr__(self) -> str:
        kind, unit = self._settings.kind, self._settings.unit
        detail = f", {self._settings.limit}" if kind == "semaphore" else ""
        detail = f", {'read' if unit == 1 else 'write'}" if kind == "rwlock" else detail
        return f"<{kind} {self.name!r}{detail}>"


class Values(OfOneProcess):
    """The values of a permit."""

    def __init__(self, gate: Any, held: Held) -> None:
        self._gate, self._held = gate, held

    @property
    def id(self) -> str:
        """The id of the holder."""
        return self._held.id

    @property
    def permits(self) -> int:
        """The number of permits."""
        return self._held.permits

    @property
    def limit(self) -> int:
        """The limit in force when the permits were granted."""
        return self._held.limit

    @property
    def fence(self) -> int:
        """A number that is higher than that of every earlier grant, unless the server's clock goes back.

        Pass it to the resource that the permit protects.
        """
        return self._held.fence

    @property
    def ticket(self) -> Ticket | None:
        """The ticket with which it waited in line; None: it did not wait."""
        return given(self._held.ticket) if self._held.ticket else None

    @property
    def expires_at(self) -> int:
        """The end of the lease in ms of the server's clock; -1: never."""
        return self._held.expires_at

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, by this machine's clock: never later than on the server. Permanent: infinite."""
        return self._held.remaining

    @property
    def is_lost(self) -> bool:
        """Whether another client may hold it by now. Sends no call."""
        return self.remaining == 0

    def _check_writer(self) -> None:
        if self._held.settings.unit == 1:
            raise Invalid(f"downgrade: got a permit of {self._held.settings.key}. Accepted: a permit of a writer")

    def __repr__(self) -> str:
        held = self._held
        return f"<permit {held.settings.key} id={held.id} fence={held.fence} {'lost' if self.is_lost else 'held'}>"


class SeveralValues(OfOneProcess, Generic[P]):
    """The values of permits of several semaphores, in the order of the request."""

    def __init__(self, gate: Any, held: list[Held], permits: list[P]) -> None:
        self._gate, self._held = gate, held
        self.permits = permits

    @property
    def fences(self) -> list[int]:
        """The fence of each semaphore."""
        return [held.fence for held in self._held]

    @property
    def remaining(self) -> float:
        """Seconds until the first of the leases ends."""
        return min(held.remaining for held in self._held)

    @property
    def is_lost(self) -> bool:
        """Whether another client may hold one of them by now. Sends no call."""
        return self.remaining == 0

    def __repr__(self) -> str:
        return f"<permits {', '.join(map(repr, self.permits))}>"


def wants_of(gate: Any, wants: Iterable[tuple[Any, int]]) -> Wants:
    """The settings and the number of permits of each."""
    try:
        pairs = [(semaphore, permits) for semaphore, permits in wants]
    except (TypeError, ValueError):
        refuse("several", wants, "pairs of a semaphore and a number of permits")
    for semaphore, permits in pairs:
        if not isinstance(semaphore, gate.semaphore_class) or semaphore._gate is not gate:
            refuse("several", semaphore, "semaphores of the same Luagate")
        check_number("permits", permits, 1)
    settings = [(semaphore._settings, permits) for semaphore, permits in pairs]
    check(settings)
    return settings


def log_failed_release(permit: Any, error: Exception) -> None:
    """The end of a block: the error of the release must not replace the result of the work."""
    LOG.warning("%r was not released; the release is repeated in the background: %s", permit, error)
