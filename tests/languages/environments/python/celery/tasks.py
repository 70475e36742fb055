"""A program of tasks. Celery loads it before it starts its workers."""

import os
import time

import celery
import luagate
import redis

app = celery.Celery("tasks", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
client = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=2)
gate = luagate.Luagate(client)
semaphore = gate.semaphore("s", 3)


@app.task
def work():
    """Returns how many tasks worked at the same time."""
    with semaphore.acquire(timeout=30):
        inside = client.incr("inside")
        time.sleep(0.02)
        client.decr("inside")
    return inside
