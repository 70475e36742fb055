"""aio_driver.py: as driver.py, with the API for asyncio."""

import asyncio
import dataclasses
import gc
import os
import random
import sys
import threading

import redis
import redis.asyncio
import redis.sentinel
from luagate.aio import Invalid, Luagate
from protocol import (
    Command,
    WorkFailed,
    checked,
    client_of,
    failure,
    granted,
    inspected,
    invalid_calls,
    is_helpful,
    resized,
    semaphore_of,
    state,
    write,
)


class Driver:
    def __init__(self):
        self.gates, self.permits, self.losses, self.calls = {}, {}, {}, {}

    async def read(self):
        """Reads commands. Returns the one that ends the event loop or leaves it for a while."""
        while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            command = Command(line)
            if command.verb in ("exit", "loop", "fork"):
                return command
            task = asyncio.create_task(self.run(command))
            self.calls[command.call] = task
            task.add_done_callback(lambda _, call=command.call: self.calls.pop(call, None))
        return None

    async def run(self, command):
        try:
            word, values = await getattr(self, command.verb)(command)
        except asyncio.CancelledError:
            word, values = "error", {"kind": "cancelled", "type": "CancelledError", "message": "cancelled"}
        except Exception as error:
            word, values = failure(error)
        write(command.call, word, **values)

    # --- Verbs ---

    async def open(self, command):
        prefix = command.get("prefix", "luagate")
        client = client_of(command, redis.asyncio.Redis, redis.asyncio.RedisCluster, redis.asyncio.Sentinel)
        self.gates[command.get("gate")] = Luagate(client, prefix)
        return "done", {}

    async def acquire(self, command):
        several, permits = self.wants(command)
        timeout = command.seconds("timeout")
        return self.keep(command, await (several.acquire(timeout) if permits is None else several.acquire(permits, timeout)))

    async def try_(self, command):
        several, permits = self.wants(command)
        return self.keep(command, await (several.try_acquire() if permits is None else several.try_acquire(permits)))

    def keep(self, command, permit):
        self.permits[command.get("permit")] = permit
        return granted(permit)

    def wants(self, command):
        """The semaphore and the number of permits; several, and None."""
        gate, lost = self.gates[command.get("gate")], asyncio.Event()
        self.losses[command.get("permit")] = lost

        def on_lost(_):
            lost.set()
            if command.get("report") == "1":
                write("!", "lost", command.call)

        wants = [semaphore_of(gate, want, on_lost) for want in command.wants]
        is_several = len(wants) != 1 or command.get("several") == "1"
        return (gate.several(wants), None) if is_several else wants[0]

    async def refresh(self, command):
        await self.permits[command.get("permit")].refresh()
        return "refreshed", {}

    async def release(self, command):
        return "released", {"held": str(await self.permits[command.get("permit")].release()).lower()}

    async def state(self, command):
        return state(self.permits[command.get("permit")])

    async def await_lost(self, command):
        try:
            await asyncio.wait_for(self.losses[command.get("permit")].wait(), command.seconds("timeout"))
            return "lost", {}
        except asyncio.TimeoutError:
            return "held", {}

    async def use(self, command):
        several, permits = self.wants(command)
        arguments = [] if permits is None else [permits]
        try:
            async with several.hold(*arguments, command.seconds("timeout"), check=command.get("check") == "1") as permit:
                self.permits[command.get("permit")] = permit
                write("!", "working", command.call)
                await asyncio.sleep(command.seconds("hold") or 0)
                if command.get("work") == "error":
                    raise WorkFailed
        except WorkFailed:
            return "raised", {}
        return "returned", {"value": "work"}

    def semaphore(self, command):
        return semaphore_of(self.gates[command.get("gate")], command.wants[0])[0]

    async def inspect(self, command):
        return inspected(await self.semaphore(command).inspect())

    async def revoke(self, command):
        return "revoked" if await self.semaphore(command).revoke(command.get("id")) else "gone", {}

    async def resize(self, command):
        return resized(await self.semaphore(command).resize(int(command.get("to"))))

    async def cancel(self, command):
        if task := self.calls.get(command.get("call")):
            task.cancel()
        return "done", {}

    async def close(self, command):
        await self.gates[command.get("gate")].close()
        return "done", {}

    async def close_client(self, command):
        await self.gates[command.get("gate")].client.aclose()
        return "done", {}

    async def counters(self, command):
        return "counters", dataclasses.asdict(self.gates[command.get("gate")].counters())

    async def threads(self, command):
        # Without those of the event loop: it keeps them, and starts more when it resolves names at the same time.
        threads = [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]
        return "done", {"count": len(threads) + len(asyncio.all_tasks()) - 1}

    async def arguments(self, command):
        gate, wrong = next(iter(self.gates.values())), []
        cases = invalid_calls(lambda prefix, **settings: Luagate(gate.client, prefix, **settings), gate)
        for text, call, accepted in cases:
            try:
                result = call()
                if asyncio.iscoroutine(result):
                    await result
                wrong.append(f"{text}: accepted")
            except Invalid as error:
                if not is_helpful(error, accepted):
                    wrong.append(f"{text}: {str(error)[:300]}")
            except Exception as error:
                wrong.append(f"{text}: {type(error).__name__}")
        return checked(cases, wrong)

    async def clients(self, command):
        url, prefix = command.get("url"), command.get("prefix", "luagate")
        works, refused, wrong = [], [], []
        for kind, make in client_kinds(url):
            try:
                client = make()
                if isinstance(client, redis.asyncio.RedisCluster):
                    await client.initialize()
            except (redis.RedisError, redis.exceptions.RedisClusterException):
                continue  # the server is not of this kind
            try:
                async with Luagate(client, prefix) as gate:
                    await (await gate.mutex("clients").try_acquire()).release()
                    await (await gate.mutex("clients").acquire(timeout=2)).release()
                works.append(kind)
            except Invalid as error:
                (refused if "Accepted: redis.asyncio.Redis" in str(error) else wrong).append(kind)
            except Exception as error:
                wrong.append(f"{kind}: {error!r}")
        return "checked", {"works": ",".join(works), "refused": ",".join(refused), "wrong": ",".join(wrong)}

    async def interrupts(self, command):
        semaphore, permits = semaphore_of(self.gates[command.get("gate")], command.wants[0])
        grants = 0

        async def use():
            nonlocal grants
            async with semaphore.acquire(permits, 5):
                grants += 1
                if random.random() < 0.05:
                    gc.collect()

        interrupted = 0
        for _ in range(int(command.get("count"))):
            task = asyncio.create_task(use())
            await asyncio.wait([task], timeout=random.uniform(0, 0.003))
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                interrupted += 1
        return "done", {"granted": grants, "interrupted": interrupted}


setattr(Driver, "try", Driver.try_)


def client_kinds(url):
    """Each kind of client object, and how it is made."""
    sentinel = redis.asyncio.Sentinel([])
    place = redis.Redis.from_url(url).connection_pool.connection_kwargs

    async def discover_master(_):
        return place["host"], place["port"]

    sentinel.discover_master = discover_master
    return [
        ("asyncio.Redis", lambda: redis.asyncio.Redis.from_url(url)),
        ("asyncio.Redis(decode_responses)", lambda: redis.asyncio.Redis.from_url(url, decode_responses=True)),
        ("asyncio.Redis(protocol=3)", lambda: redis.asyncio.Redis.from_url(url, protocol=3)),
        ("asyncio.Redis(single_connection_client)", lambda: redis.asyncio.Redis.from_url(url, single_connection_client=True)),
        ("asyncio.BlockingConnectionPool",
            lambda: redis.asyncio.Redis(connection_pool=redis.asyncio.BlockingConnectionPool.from_url(url))),
        ("asyncio.Sentinel.master_for", lambda: sentinel.master_for("master")),
        ("asyncio.RedisCluster", lambda: redis.asyncio.RedisCluster.from_url(url)),
        ("Redis", lambda: redis.Redis.from_url(url)),
        ("RedisCluster", lambda: redis.RedisCluster.from_url(url)),
        ("asyncio.Pipeline", lambda: redis.asyncio.Redis.from_url(url).pipeline()),
        ("asyncio.ConnectionPool", lambda: redis.asyncio.ConnectionPool.from_url(url)),
        ("asyncio.Sentinel", lambda: sentinel),
        ("str", lambda: url),
        ("None", lambda: None),
    ]  # fmt: skip


def end(loop):
    """What `asyncio.run` does at its end."""

    async def cancel_all():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop.run_until_complete(cancel_all())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def main(driver):
    loop = asyncio.new_event_loop()
    while command := loop.run_until_complete(driver.read()):
        if command.verb == "exit":
            write(command.call, "done")
            break
        if command.verb == "loop":
            end(loop)
            loop = asyncio.new_event_loop()
            write(command.call, "done")
        elif child := os.fork():
            loop.run_until_complete(loop.run_in_executor(None, os.waitpid, child, 0))
            write("!", "back")
        else:
            write(command.call, "done", pid=os.getpid())
            main(driver)
            os._exit(0)  # the end of the interpreter would change the parent's event loop, which has the same epoll object
    end(loop)


if __name__ == "__main__":
    main(Driver())
