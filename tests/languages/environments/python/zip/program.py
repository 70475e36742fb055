import os

import redis
from luagate import Luagate

gate = Luagate(redis.Redis.from_url(os.environ["REDIS_URL"]))
with gate.mutex("in-a-zip").acquire(timeout=2) as permit:
    print(f"granted, lost: {permit.is_lost}")
