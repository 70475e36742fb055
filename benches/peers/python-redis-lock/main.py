"""The lock of python-redis-lock, with a lease of 60 s, which is not renewed."""

import redis
from redis_lock import Lock
from scenes import play, scene

scene = scene()
# Each waiting thread needs a connection for BLPOP; by default a client has at most 100.
client = redis.Redis.from_url(scene.url, max_connections=scene.workers + 10)


def enter(number):
    lock = Lock(client, f"lock-{number}", expire=60)
    lock.acquire()
    return lock


play(scene, scene.permits, enter, Lock.release)
