"""aio_conformance.py URL CASES LUA: as conformance.py, and calls the scripts through redis.asyncio."""

import asyncio
import sys

import conformance
import redis.asyncio
from luagate.scripts import Scripts


class SyncScripts:
    """The scripts of an asyncio client, each of which blocks."""

    def __init__(self, _, folder):
        scripts = Scripts(redis.asyncio.Redis.from_url(sys.argv[1]), folder)
        loop = asyncio.new_event_loop()
        self.manifest = scripts.manifest
        self.run = {name: self.blocking(loop, script) for name, script in scripts.run.items()}

    @staticmethod
    def blocking(loop, script):
        return lambda keys, argv: loop.run_until_complete(script(keys, argv))


conformance.Scripts = SyncScripts
sys.exit(conformance.main(*sys.argv[1:]))
