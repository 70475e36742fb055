"""A semaphore of luagate, with the package in clients/python, for asyncio."""

import asyncio
import sys
from pathlib import Path

import redis.asyncio
from scenes import scene
from tasks import play

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "clients/python"))
from luagate.aio import Luagate  # noqa: E402


async def main():
    asked = scene()
    async with Luagate(redis.asyncio.Redis.from_url(asked.url, socket_timeout=2)) as gate:
        semaphore = gate.semaphore("scene", asked.permits)
        await semaphore.inspect()

        async def block(hold):
            async with semaphore.acquire():
                await hold()

        await play(asked, block)


asyncio.run(main())
