"""aio_worker.py URL PREFIX SEED: as worker.py, with the API for asyncio."""

import asyncio
import random
import sys

import redis.asyncio
from luagate.aio import Denied, Luagate, Ticket

LIMIT, LEASE, IN_LINE = 3, 2, 20
HEAD_START = 0.05  # of one call in four

url, prefix, seed = sys.argv[1:]
dice = random.Random(int(seed))


class Worker:
    def __init__(self):
        self.client = redis.asyncio.Redis.from_url(url, socket_timeout=2)
        self.gate = Luagate(self.client, prefix)

    async def log(self, **fields):
        """Adds an entry, at the server's time. Retries if the reply is lost: a second entry does no harm."""
        while True:
            try:
                return await self.client.xadd(f"{prefix}:log", fields)
            except (redis.ConnectionError, redis.TimeoutError):
                await asyncio.sleep(0.01)

    async def stay(self):
        permits, head_start = dice.randint(1, 2), HEAD_START if dice.random() < 0.25 else 0
        together = self.gate.semaphore("together", LIMIT, LEASE, head_start=head_start)
        is_hasty = dice.random() < 0.25
        async with (together.try_acquire(permits) if is_hasty else together.acquire(permits, IN_LINE)) as permit:
            await self.log(
                event="enter", language="asyncio", id=permit.id, permits=permit.permits,
                fence=permit.fence, ticket=str(Ticket(str(permit.ticket)) if permit.ticket else 0), expires_at=permit.expires_at,
                head_start=round(head_start * 1000),
            )  # fmt: skip
            try:
                await asyncio.sleep(dice.uniform(0, 0.02))
                if dice.random() < 1 / 3:
                    await permit.refresh()
            finally:
                await self.log(event="leave", id=permit.id)


async def main():
    worker = Worker()
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not ended.done():
        try:
            await worker.stay()
            print("served", flush=True)
        except Denied:
            await asyncio.sleep(dice.uniform(0.001, 0.02))
        except Exception as error:
            print("error", type(error).__name__, *str(error).split(), flush=True)
            await asyncio.sleep(0.05)
    print("finished", flush=True)


asyncio.run(main())
