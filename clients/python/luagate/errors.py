"""The errors of this package. Other errors of the server stay errors of `redis`."""

MOST = 2147483647  # the highest limit. The writer of a lock for readers and writers takes as many permits


class LuagateError(Exception):
    """The base class."""


class Refused(LuagateError):
    """The base class of `Denied`, `LineFull` and `TimedOut`: how the semaphore was in use.

    `next_expiry`: seconds until a lease may end; None: every lease is permanent.
    """

    def __init__(self, name: str, in_use: int, limit: int, waiting: int, next_expiry: float | None) -> None:
        super().__init__()
        self.args = name, in_use, limit, waiting, next_expiry  # a copy is made with these
        self.name, self.in_use, self.limit = name, in_use, limit
        self.waiting, self.next_expiry = waiting, next_expiry

    def retry_after(self, hold: float) -> float:
        """Estimates the seconds until a permit is free: hold × (waiting + 1) / limit, at least 1 ms.

        `hold`: for how many seconds a permit is typically held.
        """
        return max(0.001, hold * (self.waiting + 1) / max(1, self.limit))

    def __str__(self) -> str:
        return f"{self.name}: {self._usage}, and {self.waiting} callers wait in line"

    @property
    def _usage(self) -> str:
        if self.limit < MOST:
            return f"{self.in_use} of {self.limit} permits are in use"
        readers = f"locked for reading by {self.in_use}" if self.in_use else "not locked"
        return "locked for writing" if self.in_use == MOST else readers


class Denied(Refused):
    """`try_acquire`: the permits are not free now, or other callers wait in line."""


class LineFull(Refused):
    """`acquire`: the line has `max_waiting` waiters or more."""

    def __str__(self) -> str:
        return f"{super().__str__()}, which is max_waiting or more. Try again later"


class TimedOut(Refused, TimeoutError):
    """The permits were not granted within the timeout. The cause is the last error of the connection, if there was one.

    The numbers are those of the last reply. `next_expiry` can also be None because that reply did not contain it. Without any
    reply, `limit` is 0, and nothing is known. `timeout`: in seconds.
    """

    def __init__(self, name: str, in_use: int, limit: int, waiting: int, next_expiry: float | None, timeout: float) -> None:
        super().__init__(name, in_use, limit, waiting, next_expiry)
        self.args = (*self.args, timeout)
        self.timeout = timeout

    def __str__(self) -> str:
        why = f"the permits were not granted within {self.timeout:g} s"
        silent = "the server did not answer. Check its address, TLS and load"
        return f"{super().__str__()}; {why}" if self.limit else f"{self.name}: {why}: {silent}"


class AboveLimit(LuagateError):
    """The caller asks for more permits than the limit in force."""

    def __init__(self, name: str, permits: int, limit: int) -> None:
        super().__init__(name, permits, limit)
        self.name, self.permits, self.limit = name, permits, limit

    def __str__(self) -> str:
        return f"{self.name}: got {self.permits} permits, which is more than the limit in force. Accepted: 1 to {self.limit}"


class LimitMismatch(LuagateError):
    """The semaphore is `strict`, and another limit is in force."""

    def __init__(self, name: str, declared: int, limit: int) -> None:
        super().__init__(name, declared, limit)
        self.name, self.declared, self.limit = name, declared, limit

    def __str__(self) -> str:
        return f"{self.name}: the limit in force is {self.limit}, not {self.declared}. Change it with `resize`, or declare it"


class Lost(LuagateError):
    """The permit is no longer held: its lease ended, or it was released or revoked."""


class Revoked(LuagateError):
    """Another client removed this waiter from the line."""


class Closed(LuagateError):
    """The Luagate was closed."""


class Invalid(LuagateError, ValueError):
    """An argument is not valid. The message names it, and says what is accepted. Nothing was sent."""


class NoPermission(LuagateError):
    """The server's ACL or its password refuses this client. The message says what to add."""


class UnexpectedReply(LuagateError):
    """The scripts never return this reply: a proxy may have changed it. Whether the call had an effect is unknown."""


class Unreachable(LuagateError):
    """No connection, or no reply in time. Permits that the call may have acquired are released in the background, or their leases end."""
