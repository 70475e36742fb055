"""The lock of redis-py, with a lease of 30 s and otherwise its defaults: a try every 100 ms."""

import redis
from redis.lock import Lock
from scenes import play, scene

scene = scene()
# A thread that asks needs a connection for so long; a client keeps 100 at most unless told.
client = redis.Redis.from_url(scene.url, max_connections=scene.workers + 10)


def enter(number):
    lock = client.lock(f"lock-{number}", timeout=30)
    lock.acquire()
    return lock


play(scene, scene.permits, enter, Lock.release)
