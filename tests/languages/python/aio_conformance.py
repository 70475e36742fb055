"""aio_conformance.py URL CASES LUA: as conformance.py, and calls the scripts through redis.asyncio."""

import asyncio
import sys

import conformance
import redis.asyncio


class Blocking:
    """An asyncio client, each call of which blocks."""

    def __init__(self, url):
        self.client, self.loop = redis.asyncio.Redis.from_url(url), asyncio.new_event_loop()

    def execute_command(self, *command):
        return self.loop.run_until_complete(self.client.execute_command(*command))


client = Blocking(sys.argv[1])
conformance.Case.run_script = lambda _, commands: conformance.execute(client, commands)
sys.exit(conformance.main(*sys.argv[1:]))
