"""aio_cancel.py URL PREFIX: starts 1,000 calls of `acquire` for a semaphore of 3 permits, and cancels most after a random time.

Prints how many were granted and how many were cancelled.
"""

import asyncio
import random
import sys

import redis.asyncio
from luagate.aio import Luagate

url, prefix = sys.argv[1:]


async def stay(semaphore):
    async with await semaphore.acquire(random.randint(1, 2)):
        await asyncio.sleep(random.uniform(0, 0.005))


async def attempt(semaphore):
    try:
        await asyncio.wait_for(stay(semaphore), random.uniform(0, 0.05) if random.random() < 0.7 else None)
        return 1
    except asyncio.TimeoutError:
        return 0


async def main():
    async with Luagate(redis.asyncio.Redis.from_url(url, socket_timeout=10), prefix) as gate:
        semaphore, granted = gate.semaphore("cancelled", 3, 60), 0
        for _ in range(20):
            granted += sum(await asyncio.gather(*(attempt(semaphore) for _ in range(50))))
    print(granted, 1000 - granted)


asyncio.run(main())
