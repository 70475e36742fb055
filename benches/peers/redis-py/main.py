"""The lock of redis-py, with a lease of 30 s and otherwise its defaults: a retry every 100 ms."""

import redis
from redis.lock import Lock
from scenes import play, scene

scene = scene()
# Each asking thread needs a connection; by default a client has at most 100.
client = redis.Redis.from_url(scene.url, max_connections=scene.workers + 10)


def enter(number):
    lock = client.lock(f"lock-{number}", timeout=30)
    lock.acquire()
    return lock


play(scene, scene.permits, enter, Lock.release)
