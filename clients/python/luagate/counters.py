"""What a gate counts, for monitoring."""

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """What has happened since the gate was made, in this process. No counter ever decreases.

    The counters are read one after the other: a grant that is made at the same time may show in one and not yet in the next.
    """

    granted: int
    """Permits that were handed out, at once or after a wait. Each counts once, also one for several permits.

    If several semaphores are acquired together, each grant counts, even if it is given back because another is not free in time.
    """
    denied: int
    """Callers that were refused because of other callers: Denied, a wait in line that timed out, and LineFull.

    Failures of the server and cancelled waits do not count.
    """
    line_full: int
    """The part of `denied` that did not join the line, because it was full."""
    waited: int
    """The part of `granted` that waited in line first."""
    lost: int
    """Permits that turned out to be lost while this process held them. Each counts once, when the loss is noticed.

    A permit whose release had to be repeated does not count: the first release may have been carried out.
    """
    renewed: int
    """Renewals in the background that the server confirmed: one for each permit and each time. `refresh` does not count."""
    reconnects: int
    """Connections that replaced one that broke or did not answer in time, and subscriptions that were re-established."""


class Count:
    """One counter. Threads and signal handlers may add at the same time, without a lock: `next` is one step of Python."""

    def __init__(self) -> None:
        self._next, self._reads = itertools.count(), itertools.count()

    def add(self) -> None:
        next(self._next)

    def read(self) -> int:
        number, reads = map(next, (self._next, self._reads))  # one step too; reading also takes a number
        return number - reads


class Counts:
    """The counters, as they are updated."""

    def __init__(self) -> None:
        self.granted, self.denied, self.line_full, self.waited = Count(), Count(), Count(), Count()
        self.lost, self.renewed, self.reconnects = Count(), Count(), Count()

    def grant(self, waited: bool) -> None:
        self.granted.add()
        if waited:
            self.waited.add()

    def read(self) -> Counters:
        """Reads a part before its whole, so that no part is greater."""
        waited, line_full = self.waited.read(), self.line_full.read()
        return Counters(
            granted=self.granted.read(), denied=self.denied.read(), line_full=line_full, waited=waited, lost=self.lost.read(),
            renewed=self.renewed.read(), reconnects=self.reconnects.read(),
        )  # fmt: skip
