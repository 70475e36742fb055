"""What the APIs for threads and for asyncio share: settings, and the values of permits."""

import weakref

from luagate.keeper import Keeper
from luagate.several_steps import check
from luagate.errors import Invalid
from luagate.scripts import FOLDER, Scripts
from luagate.settings import Settings, check_prefix


class Gate:
    """The semaphores of one server. A subclass runs the steps."""

    def __init__(self, client, prefix="luagate", *, scripts=FOLDER):
        check_prefix(prefix)
        self.client, self.prefix = client, prefix
        self.scripts = Scripts(client, scripts)
        self.keeper = Keeper(self.scripts, self.wake)

    def settings(self, kind, name, limit, lease, auto_renew, max_waiting, at_least, head_start, on_lost):
        if not isinstance(limit, int):
            raise Invalid(f"limit: got {limit!r}. Accepted: an integer from 1 on")
        return Settings(self.prefix, kind, name, limit, lease, auto_renew, max_waiting, at_least, head_start, on_lost)

    def keep(self, permit):
        """Renews the permit in the background and reports its loss, until it is released or no longer referenced."""
        held = permit.held
        if not held.settings.is_kept:
            return permit
        if on_lost := held.settings.on_lost:
            itself = weakref.ref(permit)
            held.on_lost = lambda _: (permit := itself()) and on_lost(permit)
        weakref.finalize(permit, self.keeper.remove, held).atexit = False
        self.keeper.add(held)
        return permit


class Values:
    """The values of a permit."""

    def __init__(self, gate, held):
        self.gate, self.held = gate, held

    @property
    def id(self) -> str:
        """The id of the holder."""
        return self.held.id

    @property
    def permits(self) -> int:
        """The number of permits."""
        return self.held.permits

    @property
    def fence(self) -> int:
        """A number that is higher than that of every earlier grant. Pass it to what the permit protects."""
        return self.held.fence

    @property
    def ticket(self) -> int:
        """The ticket with which it waited in line; 0: it did not wait."""
        return self.held.ticket

    @property
    def expires_at(self) -> int:
        """The end of the lease in ms of the server's clock; -1: never."""
        return self.held.expires_at

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, by this machine's clock: never later than on the server."""
        return self.held.remaining

    @property
    def is_lost(self) -> bool:
        """Whether another client may hold it by now. Sends no call."""
        return self.remaining == 0


class SeveralValues:
    """The values of permits of several semaphores, in the order of the request."""

    def __init__(self, permits):
        self.permits = permits

    @property
    def fences(self) -> list[int]:
        """The fence of each semaphore."""
        return [permit.fence for permit in self.permits]

    @property
    def remaining(self) -> float:
        """Seconds until the first of the leases ends."""
        return min(permit.remaining for permit in self.permits)

    @property
    def is_lost(self) -> bool:
        """Whether another client may hold one of them by now. Sends no call."""
        return self.remaining == 0


def wants_of(gate, wants):
    """The settings and the number of permits of each."""
    wants = list(wants)
    if any(semaphore.gate is not gate for semaphore, _ in wants):
        raise Invalid("several: got a semaphore of another Luagate. Accepted: semaphores of the same Luagate")
    wants = [(semaphore.settings, permits) for semaphore, permits in wants]
    check(wants)
    return wants
