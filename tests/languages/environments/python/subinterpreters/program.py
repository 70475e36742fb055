"""A gate in a subinterpreter. Arguments: the kind of interpreter, and whether its program closes the gate."""

import os
import sys
import threading

import _interpreters
import luagate
import redis

kind, end = sys.argv[1:]
INSIDE = """
import luagate, os, redis, threading
gate = luagate.Luagate(redis.Redis.from_url(os.environ["REDIS_URL"]), "inside")
mutex = gate.mutex("m")
with mutex.acquire(timeout=5) as permit:
    assert not permit.is_lost and mutex.inspect().in_use == 1
assert mutex.inspect().in_use == 0
threads = [threading.Thread(target=lambda: mutex.acquire(timeout=5).release()) for _ in range(5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
interpreter = _interpreters.create(kind)
if failure := _interpreters.exec(interpreter, INSIDE + ("gate.close()\n" if end == "closed" else "")):
    sys.exit(failure.formatted)
_interpreters.destroy(interpreter)
assert threading.active_count() == 1

gate = luagate.Luagate(redis.Redis.from_url(os.environ["REDIS_URL"]), "inside")
with gate.mutex("m").acquire(timeout=5):
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("luagate"))
