"""Counting semaphores and locks on Redis and Valkey.

    gate = Luagate(redis.Redis())
    with gate.semaphore("market:account:17", 5).acquire(timeout=2):
        ...  # at most five at a time, first come, first served

    user, total = gate.semaphore("{market}:user:7", 3), gate.semaphore("{market}:total", 100)
    with gate.several([(user, 1), (total, 1)]).acquire(timeout=2):
        ...  # one permit of each, or none

`luagate.aio` has the same for asyncio. All durations are in seconds.
"""

from luagate.counters import Counters
from luagate.errors import (
    AboveLimit,
    Closed,
    Denied,
    Invalid,
    LimitMismatch,
    LineFull,
    Lost,
    LuagateError,
    NoPermission,
    Revoked,
    TimedOut,
    UnexpectedReply,
    Unreachable,
)
from luagate.settings import PERMANENT, name_from
from luagate.state import Holder, Resized, State, Waiter
from luagate.threads import Luagate, Permit, Permits, RwLock, Semaphore, Several
from luagate.ticket import Ticket

__all__ = [
    "PERMANENT",
    "AboveLimit",
    "Closed",
    "Counters",
    "Denied",
    "Holder",
    "Invalid",
    "LimitMismatch",
    "LineFull",
    "Lost",
    "Luagate",
    "LuagateError",
    "NoPermission",
    "Permit",
    "Permits",
    "Resized",
    "Revoked",
    "RwLock",
    "Semaphore",
    "Several",
    "State",
    "Ticket",
    "TimedOut",
    "UnexpectedReply",
    "Unreachable",
    "Waiter",
    "name_from",
]
