"""worker.py URL PREFIX SEED: takes turns on the semaphore `together`, until its input ends. See the README in ../."""

import random
import sys
import threading
import time

import redis
from luagate import Denied, Luagate, Ticket

LIMIT, LEASE, IN_LINE = 3, 2, 20
HEAD_START = 0.05  # of one call in four

url, prefix, seed = sys.argv[1:]
dice = random.Random(int(seed))
client = redis.Redis.from_url(url, socket_timeout=2)
gate = Luagate(client, prefix)
should_end = threading.Event()


def watch_standard_input():
    sys.stdin.read()
    should_end.set()


def log(**fields):
    """Adds an entry, at the server's time. Retries if the reply is lost: a second entry does no harm."""
    while True:
        try:
            return client.xadd(f"{prefix}:log", fields)
        except (redis.ConnectionError, redis.TimeoutError):
            time.sleep(0.01)


def stay():
    permits, head_start = dice.randint(1, 2), HEAD_START if dice.random() < 0.25 else 0
    together = gate.semaphore("together", LIMIT, LEASE, head_start=head_start)
    is_hasty = dice.random() < 0.25
    with together.try_acquire(permits) if is_hasty else together.acquire(permits, IN_LINE) as permit:
        log(
            event="enter", language="python", id=permit.id, permits=permit.permits,
            fence=permit.fence, ticket=str(Ticket(str(permit.ticket)) if permit.ticket else 0), expires_at=permit.expires_at,
            head_start=round(head_start * 1000),
        )  # fmt: skip
        try:
            time.sleep(dice.uniform(0, 0.02))
            if dice.random() < 1 / 3:
                permit.refresh()
        finally:
            log(event="leave", id=permit.id)


threading.Thread(target=watch_standard_input, daemon=True).start()
while not should_end.is_set():
    try:
        stay()
        print("served", flush=True)
    except Denied:
        time.sleep(dice.uniform(0.001, 0.02))
    except Exception as error:
        print("error", type(error).__name__, *str(error).split(), flush=True)
        time.sleep(0.05)
print("finished", flush=True)
