"""A program that `run types` checks strictly: a user's own check finds wrong uses of the package, and no error in it."""

import asyncio

import redis
import redis.asyncio
from luagate import PERMANENT, Counters, Denied, Invalid, Luagate, Permit, Permits, Ticket, TimedOut, aio


def threads(client: redis.Redis) -> None:
    lost: list[str] = []
    with Luagate(client, "typed", label="anna") as gate:
        user = gate.semaphore("{g}:user", 3, lease=10, auto_renew=True, on_lost=lambda permit: lost.append(permit.id))
        total = gate.mutex("{g}:total", lease=PERMANENT, strict=True)
        permit: Permit = user.acquire(2, timeout=1.5)
        fence: int = permit.fence
        wrong: str = permit.limit  # type: ignore[assignment]
        ticket: Ticket | None = permit.ticket
        guessed = Ticket(17)  # type: ignore[arg-type]
        was_held: bool = permit.release()
        try:
            total.try_acquire()
        except Denied as denied:
            after: float = denied.retry_after(0.5)
            print(denied.in_use, denied.waiting, after, fence, wrong, was_held, ticket, guessed)
        except TimedOut as late:
            print(late.in_use, late.limit, late.waiting, late.next_expiry, late.retry_after(0.5))
        except Invalid:
            pass
        several: Permits = gate.several([(user, 1), (gate.rwlock("{g}:book").read, 1)]).acquire(timeout=None)
        several.refresh()
        counters: Counters = gate.counters()
        lost_permits: int = counters.lost
        counters.lost = lost_permits  # type: ignore[misc]
        user.acquire("2")  # type: ignore[arg-type]


async def tasks(client: "redis.asyncio.Redis") -> None:
    async with aio.Luagate(client) as gate:
        async with gate.semaphore("market", 5).acquire(timeout=2) as permit:
            remaining: float = permit.remaining
            counters: aio.Counters = gate.counters()
            print(remaining, counters.reconnects)
        task: asyncio.Task[aio.Permit] = asyncio.create_task(gate.mutex("first").acquire())
        other: aio.Permit = await gate.mutex("second").try_acquire()
        print(await task, other)


if __name__ == "__main__":
    threads(redis.Redis())
    asyncio.run(tasks(redis.asyncio.Redis()))
