"""A semaphore of luagate, with the package in clients/python."""

import sys
from pathlib import Path

import redis
from scenes import play, scene

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "clients/python"))
from luagate import Luagate, Permit  # noqa: E402

scene = scene()
# Each asking thread needs a connection; by default a client has at most 100.
client = redis.Redis.from_url(scene.url, socket_timeout=2, max_connections=scene.workers + 10)
semaphore = Luagate(client).semaphore("scene", scene.permits)
play(scene, 1, lambda _: semaphore.acquire(), Permit.release)
