import os
import sys
import threading
import time

import luagate.calls
import redis

luagate.calls.IDLE = luagate.calls.UNCHECKED = 0.1  # so that no thread of luagate waits for work any more
gate = luagate.Luagate(redis.Redis.from_url(os.environ["REDIS_URL"]))
mutex = gate.mutex("m")
main = threading.main_thread()


def refuse(start):
    """As Python 3.12 does, also in an earlier one."""

    def checked(thread):
        if not main.is_alive():
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    return checked


def work():
    try:
        with mutex.acquire(timeout=5):
            while main.is_alive() or any(thread.name == "luagate-call" for thread in threading.enumerate()):
                time.sleep(0.01)
        assert mutex.inspect().in_use == 0, "the block has not released"
        with mutex.acquire(timeout=5) as permit:
            assert not permit.is_lost
            assert mutex.inspect().in_use == 1
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


threading.Thread.start = refuse(threading.Thread.start)
threading.Thread(target=work).start()
