"""The clock of leases and timeouts. It goes on while the machine is suspended, as a lease does at the server."""

import sys
import time
from collections.abc import Callable
from functools import partial

now: Callable[[], float] = partial(time.monotonic)  # on Windows it goes on. freezegun does not replace a partial
if hasattr(time, "CLOCK_BOOTTIME"):  # Linux
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
elif sys.platform == "darwin":  # there `time.monotonic` stops, and this clock does not
    now = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
