import asyncio
import enum
import os

import redis
import redis.asyncio
from luagate import Denied, Luagate, aio


class Text(str, enum.Enum):
    NAME, LABEL, PREFIX, ID = "jobs", "anna", "shop", "nobody"


class Number(enum.IntEnum):
    LIMIT, PERMITS, RESIZED, LEASE = 5, 2, 7, 60


URL = os.environ["REDIS_URL"]
plain = Luagate(redis.Redis.from_url(URL), "shop").semaphore("jobs", 5)


def is_plain(permit, semaphore):
    """The other program sees the same semaphore, and the values are no members."""
    state = plain.inspect()
    assert (state.limit, state.in_use, state.holders[0].label) == (5, 2, "anna"), state
    assert permit.id == state.holders[0].id and type(permit.permits) is int
    assert (type(semaphore.name), semaphore.name) == (str, "jobs")


def threads():
    gate = Luagate(redis.Redis.from_url(URL), Text.PREFIX, label=Text.LABEL)
    settings = dict(lease=Number.LEASE, max_waiting=Number.PERMITS, label=Text.LABEL)
    jobs = gate.semaphore(Text.NAME, Number.LIMIT, **settings)
    for acquire in (lambda: jobs.try_acquire(Number.PERMITS), lambda: jobs.acquire(Number.PERMITS, timeout=Number.LIMIT)):
        with acquire() as permit:
            is_plain(permit, jobs)
    several = gate.several([(jobs, Number.PERMITS)])
    for acquire in (several.try_acquire, several.acquire):
        with acquire() as permits:
            is_plain(permits.permits[0], jobs)
    with gate.mutex(Text.NAME).acquire():
        try:
            Luagate(gate.client, "shop").mutex("jobs").try_acquire()
            raise AssertionError("two programs hold one mutex")
        except Denied:
            pass
    assert jobs.revoke(Text.ID) is False
    assert jobs.resize(Number.RESIZED).new == 7 and plain.resize(5).new == 5


async def tasks():
    async with aio.Luagate(redis.asyncio.Redis.from_url(URL), Text.PREFIX, label=Text.LABEL) as gate:
        jobs = gate.semaphore(Text.NAME, Number.LIMIT)
        async with jobs.hold(Number.PERMITS, timeout=Number.LIMIT) as permit:
            is_plain(permit, jobs)
        assert await jobs.revoke(Text.ID) is False
        assert (await jobs.resize(Number.RESIZED)).new == 7 and plain.resize(5).new == 5


threads()
asyncio.run(tasks())
