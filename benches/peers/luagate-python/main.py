"""A semaphore of luagate, with the package in clients/python."""

import sys
from pathlib import Path

import redis
from scenes import play_blocks, scene

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "clients/python"))
from luagate import Luagate  # noqa: E402

scene = scene()
semaphore = Luagate(redis.Redis.from_url(scene.url, socket_timeout=2)).semaphore("scene", scene.permits)


def block(_, hold):
    with semaphore.acquire():
        hold()


play_blocks(scene, 1, block)
