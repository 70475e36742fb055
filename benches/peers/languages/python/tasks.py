"""As scenes.py, with tasks of asyncio."""

import asyncio
import json
import random
import sys
import time


async def play(scene, block):
    """`block` receives a function that holds the permit for its time."""
    print("ready", flush=True)
    sys.stdin.readline()
    start, end, stays = time.monotonic(), time.monotonic() + scene.seconds, []

    def now():
        return int((time.monotonic() - start) * 1e6)

    async def work():
        while True:
            asked = now()

            async def hold():
                entered = now()
                if scene.hold:
                    await asyncio.sleep(scene.hold)
                stays.append((0, asked, entered, now()))

            await block(hold)
            if scene.once or time.monotonic() >= end:
                break

    while time.monotonic() < end:
        await asyncio.gather(*[work() for _ in range(scene.workers)])
    print(json.dumps({"stays": stays}), flush=True)
