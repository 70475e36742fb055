"""The errors of this package. Errors of the server and of the connection are those of `redis`."""


class LuagateError(Exception):
    """The base class."""


class TimedOut(LuagateError):
    """The permits were not granted within the timeout."""


class LineFull(LuagateError):
    """The line has `max_waiting` waiters or more. `waiting` is their number."""

    def __init__(self, why: str, waiting: int):
        super().__init__(why)
        self.waiting = waiting


class Lost(LuagateError):
    """The permit is no longer held: its lease ended, or it was released or revoked."""


class Revoked(LuagateError):
    """Another client removed this waiter from the line."""


class Invalid(LuagateError, ValueError):
    """An argument is not valid. The message names it, and says what is accepted."""
