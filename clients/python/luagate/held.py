"""A held permit: its data, and the end of its lease by this machine's clock."""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from luagate import clock, process
from luagate.errors import Lost
from luagate.settings import Settings


class Held:
    """The state of a permit. Threads may share it. `expires_at`: server time in ms; -1: never."""

    def __init__(
        self, settings: Settings, id: str, ticket: int, permits: int, limit: int, fence: int, expires_at: int, deadline: float
    ) -> None:
        self.settings, self.id, self.ticket = settings, id, ticket
        self.permits, self.limit, self.fence = permits, limit, fence
        self.expires_at, self._deadline = expires_at, deadline
        self.lease_ms = settings.first_lease_ms  # what a refresh asks for; 0: permanent
        self.auto_renew = settings.is_renewed
        self.on_lost: Callable[[Any], object] | None = None  # is called once with this object if the permit is lost
        self.keeper: Any = None  # the agenda of its session
        self.is_unsure = False  # a call for it was not answered: it may arrive late, after the release
        self.at = 0.0  # when the agenda looks at it
        self.watch: Any = None  # of the permit
        self._is_over = False  # released, or known to be lost
        self._uncounted = deque([None])  # empty: its loss was counted
        self._process = process.number()

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, by this machine's clock: never later than on the server."""
        left = max(0, self.deadline - clock.now())
        if not left and not self._is_over and self.is_of_this_process:
            self.count_loss()
        return left

    @property
    def deadline(self) -> float:
        """The end of the lease by `clock.now`."""
        return -math.inf if self._is_over or not self.is_of_this_process else self._deadline

    @property
    def is_of_this_process(self) -> bool:
        """A permit belongs to the process that acquired it, not to a child that was forked later."""
        return self._process == process.number()

    @property
    def is_over(self) -> bool:
        """Whether it was released, or is known to be lost."""
        return self._is_over

    def end(self) -> None:
        """The holder releases it, or it is lost."""
        self._is_over = True

    def count_loss(self) -> None:
        """Counts its loss, once."""
        if self.keeper is not None:  # otherwise it was not handed out
            with suppress(IndexError):
                self._uncounted.pop()
                self.keeper.session.counts.lost.add()

    def refreshed(self, reply: Any, asked: float) -> None:
        """Takes the reply to a refresh that was sent after `asked`."""
        if reply.word == "lost":
            raise self.lost()
        self.expires_at, self._deadline = reply.expires_at, deadline(asked, reply.expires_at, reply.now)

    def lost(self) -> Lost:
        return Lost(f"{self.settings.key}: the lease of {self.id} ended, or its permit was released or revoked")


def deadline(instant: float, expires_at: int, now: int) -> float:
    """The end of a lease by this machine's clock, counted from an instant before the server's `now`, less 1 ms for rounding."""
    return math.inf if expires_at == -1 else instant + (expires_at - now - 1) / 1000
