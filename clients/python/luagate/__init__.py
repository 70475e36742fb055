"""Counting semaphores and locks on Redis and Valkey.

    gate = Luagate(redis.Redis(socket_timeout=2))
    with gate.semaphore("market:account:17", 5).acquire(timeout=2):
        ...  # at most five at a time, first come, first served

    user, total = gate.semaphore("{market}:user:7", 3), gate.semaphore("{market}:total", 100)
    with gate.several([(user, 1), (total, 1)]).acquire(timeout=2):
        ...  # one permit of each, or none

`luagate.aio` has the same for asyncio. All durations are in seconds.
"""

from luagate.errors import Invalid, LineFull, Lost, LuagateError, Revoked, TimedOut
from luagate.threads import Luagate, Permit, Permits, Semaphore, Several

__all__ = [
    "Invalid",
    "LineFull",
    "Lost",
    "Luagate",
    "LuagateError",
    "Permit",
    "Permits",
    "Revoked",
    "Semaphore",
    "Several",
    "TimedOut",
]
