"""A held permit: its data, and the end of its lease by this machine's clock."""

import math
import time

from luagate.errors import Lost


class Held:
    """The state of a permit. Threads may share it. `expires_at`: server time in ms; -1: never."""

    def __init__(self, settings, id, ticket, permits, fence, expires_at, deadline):
        self.settings, self.id, self.ticket = settings, id, ticket
        self.permits, self.fence = permits, fence
        self.expires_at, self._deadline = expires_at, deadline
        self.auto_renew = settings.is_renewed
        self.on_lost = None  # is called once with this object if the permit is lost
        self._is_over = False  # released, or known to be lost

    @property
    def remaining(self):
        """Seconds until the lease ends, by this machine's clock: never later than on the server."""
        return max(0, self.deadline - time.monotonic())

    @property
    def deadline(self):
        """The end of the lease by `time.monotonic`."""
        return -math.inf if self._is_over else self._deadline

    def end(self):
        """The holder releases it, or it is lost."""
        self._is_over = True

    def refreshed(self, reply, asked):
        """Takes the reply to a refresh that was sent after `asked`."""
        if reply.word == "lost":
            raise Lost(f"{self.settings.key}: the lease of {self.id} ended, or its permit was released or revoked")
        self.expires_at, self._deadline = reply.expires_at, deadline(asked, reply.expires_at, reply.now)


def deadline(instant, expires_at, now):
    """The end of a lease by this machine's clock, counted from an instant before the server's `now`, less 1 ms for rounding."""
    return math.inf if expires_at == -1 else instant + (expires_at - now - 1) / 1000
