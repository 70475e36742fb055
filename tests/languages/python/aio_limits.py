"""aio_limits.py URL PREFIX: as limits.py, with the API for asyncio."""

import asyncio
import sys

import redis.asyncio
from luagate.aio import Denied, LineFull, Lost, Luagate, Permits, TimedOut

url, prefix = sys.argv[1:]


class Caller:
    def __init__(self):
        self.gate = Luagate(redis.asyncio.Redis.from_url(url), prefix)
        self.held, self.lost = None, asyncio.Event()

    def want(self, text):
        name, limit, permits, lease, max_waiting, at_least, *head_start = text.split("/")
        more = {"auto_renew": lease.endswith("+"), "max_waiting": int(max_waiting), "at_least": int(at_least) / 1000}
        if head_start:
            more["head_start"] = int(head_start[0]) / 1000
        lease = None if lease == "-" else int(lease.removesuffix("+")) / 1000
        notify = self.lost
        return self.gate.semaphore(name, int(limit), lease, on_lost=lambda _: notify.set(), **more), int(permits)

    async def ask(self, verb, words):
        timeout = int(words.pop(0)) / 1000 if verb in ("acquire", "several") else None
        wants = [self.want(word) for word in words]
        if verb == "acquire":
            return await wants[0][0].acquire(wants[0][1], timeout)
        if verb == "try":
            return await wants[0][0].try_acquire(wants[0][1])
        several = self.gate.several(wants)
        return await (several.acquire(timeout) if verb == "several" else several.try_acquire())

    async def answer(self, verb, words):
        if verb == "await_lost":
            try:
                await asyncio.wait_for(self.lost.wait(), int(words[0]) / 1000)
                return "lost"
            except asyncio.TimeoutError:
                return "held"
        if verb == "refresh":
            await self.held.refresh()
            return "refreshed"
        if verb == "release":
            return f"released {await self.held.release()}".lower()
        if verb == "look":
            return f"{'lost' if self.held.is_lost else 'held'} {int(self.held.remaining * 1000)}"
        self.lost = asyncio.Event()
        self.held = await self.ask(verb, words)
        fences = self.held.fences if isinstance(self.held, Permits) else [self.held.fence]
        return " ".join(map(str, ["held", *fences]))


async def main():
    caller, loop = Caller(), asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            verb, *words = line.split()
            result = await caller.answer(verb, words)
        except Denied:
            result = "none"
        except LineFull as full:
            result = f"full {full.waiting}"
        except TimedOut as error:  # a cause: the server has not answered
            result = f"refused {error}" if error.__cause__ else "timed_out"
        except Lost:
            result = "lost"
        except Exception as error:
            result = f"refused {error}"
        print(result, flush=True)


asyncio.run(main())
