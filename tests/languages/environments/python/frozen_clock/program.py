"""The clocks of Python stand still, or are moved. Argument: the package that does it."""

import asyncio
import contextlib
import datetime
import faulthandler
import os
import sys
from time import clock_gettime as real_clock

import luagate
import luagate.aio
import redis
import redis.asyncio

DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
LEASE = 1
URL = os.environ["REDIS_URL"]
faulthandler.dump_traceback_later(60, exit=True)


def now():
    with open("/proc/uptime") as uptime:  # no package replaces this one
        return float(uptime.read().split()[0])


@contextlib.contextmanager
def frozen(package):
    """Yields a function that moves the clocks by an hour."""
    if package == "freezegun":
        import freezegun

        with freezegun.freeze_time(DAY, real_asyncio=True) as clock:
            yield lambda: clock.tick(3_600)
    else:
        import time_machine

        with time_machine.travel(DAY, tick=False) as clock:
            yield lambda: clock.shift(3_600)


def threads(move, mutex):
    began = now()
    permit = mutex.acquire(timeout=5)
    try:
        mutex.acquire(timeout=1)
    except luagate.TimedOut:
        pass
    assert 0.9 < now() - began < 4, f"the timeout took {now() - began:.1f} s"
    move()
    while now() - began < 3 * LEASE:
        assert not permit.is_lost and mutex.inspect().in_use == 1, "the permit is lost"
    assert permit.release(), "the permit was lost"


async def tasks(move, mutex):
    began = now()
    permit = await mutex.acquire(timeout=5)
    try:
        await mutex.acquire(timeout=1)
    except luagate.TimedOut:
        pass
    assert 0.9 < now() - began < 4, f"the timeout took {now() - began:.1f} s"
    move()
    while now() - began < 3 * LEASE:
        assert not permit.is_lost and (await mutex.inspect()).in_use == 1, "the permit is lost"
        await asyncio.sleep(0.01)
    assert await permit.release(), "the permit was lost"


async def in_loop(move):
    async with luagate.aio.Luagate(redis.asyncio.Redis.from_url(URL)) as gate:
        await tasks(move, gate.mutex("tasks", lease=LEASE, auto_renew=True))


with frozen(sys.argv[1]) as move:
    with luagate.Luagate(redis.Redis.from_url(URL)) as gate:
        threads(move, gate.mutex("threads", lease=LEASE, auto_renew=True))
    asyncio.run(in_loop(move))
