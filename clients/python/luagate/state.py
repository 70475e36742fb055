"""What `inspect` and `resize` return."""

import re
from dataclasses import dataclass
from typing import Any

from luagate.scripts import text
from luagate.ticket import Ticket, given

LABELLED = re.compile(r"(.+)/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Holder:
    """A held permit. `remaining`: seconds until its lease ends; None: never.

    `cooling_down`: released before its minimum hold ended; then nobody holds it, and `remaining` is the time until that end.
    """

    id: str
    label: str | None
    permits: int
    fence: int
    remaining: float | None
    cooling_down: bool


@dataclass(frozen=True)
class Waiter:
    """A caller in line."""

    id: str
    label: str | None
    permits: int
    ticket: Ticket


@dataclass(frozen=True)
class State:
    """The state of a semaphore. `limit`: in force; None: no call has declared one. `pinned`: set by `resize`."""

    limit: int | None
    pinned: bool
    in_use: int
    waiter_count: int
    holders: list[Holder]
    waiters: list[Waiter]

    @staticmethod
    def of(reply: Any) -> "State":
        """The state in a reply of the script `inspect`."""
        holders = []
        for row in reply.holders:
            id, (permits, fence, expires_at, cooling_down) = text(row[0]), row[1:]
            remaining = None if expires_at == -1 else max(0, expires_at - reply.now) / 1000
            holders.append(Holder(id, label_of(id), permits, fence, remaining, bool(cooling_down)))
        waiters = [Waiter(text(row[0]), label_of(text(row[0])), row[1], given(row[2])) for row in reply.waiters]
        return State(reply.limit or None, bool(reply.pinned), reply.in_use, reply.waiter_count, holders, waiters)


@dataclass(frozen=True)
class Resized:
    """The limit before (None: there was none) and after a `resize`, and the permits that are in use."""

    old: int | None
    new: int
    in_use: int


def label_of(id: str) -> str | None:
    """The label of an id of the form label/uuid."""
    found = LABELLED.fullmatch(id)
    return found[1] if found else None
