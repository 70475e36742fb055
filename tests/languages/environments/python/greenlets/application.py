"""A web application. gunicorn loads it before it starts its workers, which patch the modules."""

import os

import luagate
import redis

gate = luagate.Luagate(redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=2))
semaphore = gate.semaphore("s", 1)


def application(environment, start_response):
    with semaphore.acquire(timeout=20):
        start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"released"]
