"""A semaphore of luagate's scripts, by the client of tests/languages/python."""

import sys
from pathlib import Path

import redis
from scenes import play, scene

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests/languages/python"))
from luagate import Luagate, Permit  # noqa: E402

scene = scene()
# A thread that asks needs a connection for so long; a client keeps 100 at most unless told.
client = redis.Redis.from_url(scene.url, socket_timeout=2, max_connections=scene.workers + 10)
semaphore = Luagate(client, ROOT / "lua").semaphore("scene", scene.permits)
play(scene, 1, lambda _: semaphore.acquire(), Permit.release)
