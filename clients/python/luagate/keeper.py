"""Which permits to renew, and when; and which are lost. Without threads and tasks."""

import logging
import math
import threading
import time

import redis
from luagate.errors import Lost

BATCH = 100  # the most permits that are renewed together
REFRESH = "semaphore/refresh"
LOG = logging.getLogger("luagate")


class Keeper:
    """The held permits of a client. `wake(renewal, loss)`: called with the times of a permit, by `time.monotonic`."""

    def __init__(self, scripts, wake):
        self._scripts, self._wake = scripts, wake
        self._renewals = {}  # the time of the next renewal, by permit
        self._kept = set()
        self._lock = threading.Lock()

    def add(self, held):
        """From now on, renews the permit if it asks for that, and reports its loss."""
        with self._lock:
            self._kept.add(held)
        self.changed(held)

    def changed(self, held):
        """The end of its lease has changed."""
        with self._lock:
            self._plan(held)
            if held not in self._kept:
                return
            renewal = self._renewals.get(held, math.inf)
        self._wake(renewal, held.deadline)

    def remove(self, held):
        with self._lock:
            self._kept.discard(held)
            self._renewals.pop(held, None)

    def _plan(self, held):
        """Renews it when a third of the time that is left is over."""
        if held in self._kept and held.auto_renew and held.remaining < math.inf:
            self._renewals[held] = time.monotonic() + min(held.remaining, held.settings.lease_ms / 1000) / 3

    @property
    def next_renewal(self):
        """The time of the next renewal."""
        with self._lock:
            return min(self._renewals.values(), default=math.inf)

    @property
    def next_loss(self):
        """The time at which the first lease ends."""
        with self._lock:
            return min((held.deadline for held in self._kept), default=math.inf)

    def renew(self):
        """Renews the permits that are due, in one packet and without retries. Steps, see `steps`."""
        now = time.monotonic()
        with self._lock:
            due = [held for held, at in self._renewals.items() if at <= now][:BATCH]
        if not due:
            return
        calls = [(held.settings.keys, [held.id, held.settings.lease_ms]) for held in due]
        try:
            replies = yield "scripts", REFRESH, calls
            if any(isinstance(reply, redis.exceptions.NoScriptError) for reply in replies):
                yield "load", REFRESH
                replies = yield "scripts", REFRESH, calls
        except Exception as error:
            replies = [error] * len(due)
        for held, reply in zip(due, replies):
            self._renewed(held, reply, now)

    def _renewed(self, held, reply, asked):
        try:
            if isinstance(reply, Exception):
                raise reply
            held.refreshed(self._scripts.reply(REFRESH, reply), asked)
        except Lost:
            self._lose(held)
        except Exception as error:
            LOG.warning("%s: the lease of %s was not renewed; the renewal is retried: %s", held.settings.key, held.id, error)
            pause = min(max(held.settings.lease_ms / 10_000, 0.005), 1)
            with self._lock:
                if held in self._renewals:
                    self._renewals[held] = time.monotonic() + pause
        else:
            self.changed(held)

    def report(self):
        """Reports the permits whose leases have ended."""
        with self._lock:
            over = [held for held in self._kept if not held.remaining]
        for held in over:
            self._lose(held)

    def _lose(self, held):
        with self._lock:
            was_released = held not in self._kept
        if was_released:
            return
        self.remove(held)
        held.end()
        if held.on_lost:
            try:
                held.on_lost(held)
            except Exception:
                LOG.exception("%s: on_lost failed for the permit %s", held.settings.key, held.id)
