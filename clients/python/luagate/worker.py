"""A thread that works at certain times."""

import math
import threading
import time


class Worker:
    """Runs `work` whenever `next_time`, by `time.monotonic`, is over. The thread starts with the first `wake`."""

    def __init__(self, name, next_time, work):
        self._next_time, self._work = next_time, work
        self._changed, self._sleeps_until, self._is_closed = threading.Condition(), -math.inf, False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def wake(self, at):
        """Something is due at this time."""
        with self._changed:
            if self._thread.ident is None and not self._is_closed:
                self._thread.start()
            if at < self._sleeps_until:
                self._changed.notify()

    def close(self):
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self):
        while self._sleep():
            self._work()

    def _sleep(self):
        with self._changed:
            while not self._is_closed and (left := self._next_time() - time.monotonic()) > 0:
                self._sleeps_until = time.monotonic() + left
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            self._sleeps_until = -math.inf
            return not self._is_closed
