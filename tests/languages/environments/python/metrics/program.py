import os
from pathlib import Path

import luagate
import prometheus_client
import redis

readme = Path(os.environ["LUAGATE_ROOT"], "clients/python/README.md").read_text("utf-8")
section = readme.partition("\n## Metrics\n")[2].partition("\n## ")[0]
code = section.partition("```python\n")[2].partition("```")[0]

with luagate.Luagate(redis.Redis.from_url(os.environ["REDIS_URL"])) as gate:
    exec(code, {"gate": gate})
    for count in (1, 2):
        with gate.mutex("m").acquire(timeout=5):
            pass
        shown = prometheus_client.generate_latest().decode()
        assert f"luagate_granted_total {count}.0\n" in shown, shown
        assert "luagate_lost_total 0.0\n" in shown, shown
