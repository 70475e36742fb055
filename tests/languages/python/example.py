import os

import redis
from luagate import Luagate

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1/"), socket_timeout=2)
gate = Luagate(client, "lua")

# At most five processes of this account are in the market at a time.
market = gate.semaphore("market:account:17", 5, lease=10)
with market.acquire(timeout=2) as permit:  # in line, first come, first served
    print(f"trading as {permit.id}, fence {permit.fence}")
