"""driver.py: reads commands, and calls luagate with threads. See ../faults/README.md."""

import dataclasses
import dis
import functools
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time

import redis
import redis.asyncio
import redis.sentinel
from luagate import Invalid, Luagate, LuagateError
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


class Interrupted(TimeoutError):
    """Is raised by the signal handler. redis-py takes a TimeoutError for one of the network."""


class Trace:
    """Raises Interrupted at one place in the code of luagate or redis-py.

    Only where Python calls signal handlers: at the start of a function, and after a call.
    """

    FOLLOWS = "CALL", "PRECALL", "RESUME"

    def __init__(self, place):
        self.left = place
        self.is_done = False

    def __call__(self, frame, event, _):
        if frame.f_globals["__name__"].partition(".")[0] not in ("luagate", "redis"):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.look

    def look(self, frame, event, _):
        if event == "opcode" and not self.is_done and frame.f_lasti in self.places(frame.f_code):
            if not self.left:
                self.is_done = True
                raise Interrupted
            self.left -= 1
        return self.look

    @staticmethod
    @functools.cache
    def places(code):
        steps = list(dis.get_instructions(code))
        return {after.offset for before, after in itertools.pairwise(steps) if before.opname.startswith(Trace.FOLLOWS)}


class Driver:
    def __init__(self):
        self.gates, self.permits, self.losses = {}, {}, {}
        self.parents = 0  # the number of forks between the first process and this one

    def read(self):
        for line in sys.stdin:
            command = Command(line)
            if command.verb == "exit":
                write(command.call, "done")
                return
            if command.verb in ("fork", "threads", "interrupts", "interrupts_everywhere"):  # only the main thread receives signals
                self.run(command)
            else:
                threading.Thread(target=self.run, args=(command,), daemon=True).start()

    def run(self, command):
        try:
            word, values = getattr(self, command.verb)(command)
        except Exception as error:
            word, values = failure(error)
        if word:
            write(command.call, word, **values)

    # --- Verbs ---

    def open(self, command):
        prefix = command.get("prefix", "luagate")
        client = client_of(command, redis.Redis, redis.RedisCluster, redis.sentinel.Sentinel)
        self.gates[command.get("gate")] = Luagate(client, prefix)
        return "done", {}

    def acquire(self, command):
        several, permits = self.wants(command)
        timeout = command.seconds("timeout")
        return self.keep(command, several.acquire(timeout) if permits is None else several.acquire(permits, timeout))

    def try_(self, command):
        several, permits = self.wants(command)
        return self.keep(command, several.try_acquire() if permits is None else several.try_acquire(permits))

    def keep(self, command, permit):
        self.permits[command.get("permit")] = permit
        return granted(permit)

    def wants(self, command):
        """The semaphore and the number of permits; several, and None."""
        gate, lost = self.gates[command.get("gate")], threading.Event()
        self.losses[command.get("permit")] = lost

        def on_lost(_):
            lost.set()
            if command.get("report") == "1":
                write("!", "lost", command.call)

        wants = [semaphore_of(gate, want, on_lost) for want in command.wants]
        is_several = len(wants) != 1 or command.get("several") == "1"
        return (gate.several(wants), None) if is_several else wants[0]

    def refresh(self, command):
        self.permits[command.get("permit")].refresh()
        return "refreshed", {}

    def release(self, command):
        return "released", {"held": str(self.permits[command.get("permit")].release()).lower()}

    def state(self, command):
        return state(self.permits[command.get("permit")])

    def await_lost(self, command):
        return "lost" if self.losses[command.get("permit")].wait(command.seconds("timeout")) else "held", {}

    def use(self, command):
        several, permits = self.wants(command)
        arguments = [] if permits is None else [permits]
        try:
            with several.hold(*arguments, command.seconds("timeout"), check=command.get("check") == "1") as permit:
                self.permits[command.get("permit")] = permit
                write("!", "working", command.call)
                time.sleep(command.seconds("hold") or 0)
                if command.get("work") == "error":
                    raise WorkFailed
        except WorkFailed:
            return "raised", {}
        return "returned", {"value": "work"}

    def semaphore(self, command):
        return semaphore_of(self.gates[command.get("gate")], command.wants[0])[0]

    def inspect(self, command):
        return inspected(self.semaphore(command).inspect())

    def revoke(self, command):
        return "revoked" if self.semaphore(command).revoke(command.get("id")) else "gone", {}

    def resize(self, command):
        return resized(self.semaphore(command).resize(int(command.get("to"))))

    def close(self, command):
        self.gates[command.get("gate")].close()
        return "done", {}

    def close_client(self, command):
        self.gates[command.get("gate")].client.close()
        return "done", {}

    def counters(self, command):
        return "counters", dataclasses.asdict(self.gates[command.get("gate")].counters())

    def threads(self, command):
        return "done", {"count": threading.active_count()}

    def fork(self, command):
        if child := os.fork():
            os.waitpid(child, 0)
            write("!", "back")
            return None, {}
        return "done", {"pid": os.getpid()}

    def arguments(self, command):
        gate, wrong = next(iter(self.gates.values())), []
        cases = invalid_calls(lambda prefix, **settings: Luagate(gate.client, prefix, **settings), gate)
        for text, call, accepted in cases:
            try:
                call()
                wrong.append(f"{text}: accepted")
            except Invalid as error:
                if not is_helpful(error, accepted):
                    wrong.append(f"{text}: {str(error)[:300]}")
            except Exception as error:
                wrong.append(f"{text}: {type(error).__name__}")
        return checked(cases, wrong)

    def clients(self, command):
        url, prefix = command.get("url"), command.get("prefix", "luagate")
        works, refused, wrong = [], [], []
        for kind, make in client_kinds(url):
            try:
                client = make()
            except (redis.RedisError, redis.exceptions.RedisClusterException):
                continue  # the server is not of this kind
            try:
                with Luagate(client, prefix) as gate:
                    gate.mutex("clients").try_acquire().release()
                    gate.mutex("clients").acquire(timeout=2).release()
                works.append(kind)
            except Invalid as error:
                (refused if "Accepted: redis.Redis" in str(error) else wrong).append(kind)
            except Exception as error:
                wrong.append(f"{kind}: {error!r}")
        return "checked", {"works": ",".join(works), "refused": ",".join(refused), "wrong": ",".join(wrong)}

    def interrupts(self, command):
        semaphore, permits = semaphore_of(self.gates[command.get("gate")], command.wants[0])
        grants = raised = interrupted = 0
        at_end = command.get("at") == "end"

        def interrupt(*_):
            nonlocal raised
            raised += 1
            raise Interrupted

        before = signal.signal(signal.SIGALRM, interrupt)
        for _ in range(int(command.get("count"))):
            try:
                try:
                    if not at_end:
                        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.003))
                    with semaphore.acquire(permits, 5) as _permit:
                        grants += 1
                        if random.random() < 0.05:
                            gc.collect()
                        if at_end:
                            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.000001, 0.0001))
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except (Interrupted, LuagateError) as error:
                signal.setitimer(signal.ITIMER_REAL, 0)
                if not isinstance(error, Interrupted):
                    raise
                interrupted += 1
        signal.signal(signal.SIGALRM, before)
        if raised - interrupted > raised // 20:  # Python itself loses those that come while it frees an object
            raise AssertionError(f"{raised - interrupted} of {raised} errors of the handler did not reach the caller")
        return "done", {"granted": grants, "interrupted": interrupted}

    def interrupts_everywhere(self, command):
        semaphore, permits = semaphore_of(self.gates[command.get("gate")], command.wants[0])
        place = 0
        while True:
            try:
                with semaphore.acquire(permits, 10):
                    sys.settrace(Trace(place))
                sys.settrace(None)
                return "done", {"interrupted": place}
            except Interrupted:
                place += 1


setattr(Driver, "try", Driver.try_)


def client_kinds(url):
    """Each kind of client object, and how it is made."""
    sentinel = redis.sentinel.Sentinel([])
    place = redis.Redis.from_url(url).connection_pool.connection_kwargs
    sentinel.discover_master = lambda _: (place["host"], place["port"])
    return [
        ("Redis", lambda: redis.Redis.from_url(url)),
        ("Redis(decode_responses)", lambda: redis.Redis.from_url(url, decode_responses=True)),
        ("Redis(protocol=3)", lambda: redis.Redis.from_url(url, protocol=3)),
        ("Redis(single_connection_client)", lambda: redis.Redis.from_url(url, single_connection_client=True)),
        ("BlockingConnectionPool", lambda: redis.Redis(connection_pool=redis.BlockingConnectionPool.from_url(url))),
        ("Sentinel.master_for", lambda: sentinel.master_for("master")),
        ("RedisCluster", lambda: redis.RedisCluster.from_url(url)),
        ("asyncio.Redis", lambda: redis.asyncio.Redis.from_url(url)),
        ("asyncio.RedisCluster", lambda: redis.asyncio.RedisCluster.from_url(url)),
        ("Pipeline", lambda: redis.Redis.from_url(url).pipeline()),
        ("PubSub", lambda: redis.Redis.from_url(url).pubsub()),
        ("ConnectionPool", lambda: redis.ConnectionPool.from_url(url)),
        ("Sentinel", lambda: sentinel),
        ("str", lambda: url),
        ("None", lambda: None),
    ]  # fmt: skip


if __name__ == "__main__":
    Driver().read()
