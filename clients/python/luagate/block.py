"""The end of a `with` block, for threads: it releases, also if an interrupt comes before `__exit__` begins.

Python raises the error of a signal handler, as KeyboardInterrupt, at the start of a function too. At the end of a block this can be
`__exit__` itself, before its first statement. So `with` gets a function that only the block has a reference to. When this function
is freed and has not released the permits, the background releases them, see `Agenda`.

What remains: an interrupt after the server has granted and before the block has begun, between `acquire` and `with`. Then nothing
has a reference to the permit, so it is not renewed, and its lease ends.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import redis
from luagate import steps
from luagate.agenda import Watch
from luagate.api import END, log_failed_release
from luagate.errors import LuagateError


class Exit:
    """The attribute `__exit__`. `with` reads it before it calls `__enter__`."""

    def __get__(self, permit: "Blocks | None", owner: type) -> Callable[..., None]:
        if permit is None:
            return _leave  # as `contextlib.ExitStack` does, which calls it with the permit
        leave = partial(_leave, permit)
        permit._block = Watch.of(leave, permit._all, permit._all[0].keeper.mailbox.put_nowait)
        return leave


class Blocks:
    """One or several permits. Leaving the `with` block releases them; an error of this release is only logged."""

    _all: Any  # the state of each
    _block: Watch | None = None  # the block that may use the permits
    _was_held = True

    __exit__ = Exit()

    _is_checked = False  # the caller asks at the end whether the permits were lost
    _gate: Any

    def release(self) -> bool:
        raise NotImplementedError

    @property
    def _each(self) -> list[Any]:
        """The permits of each semaphore."""
        raise NotImplementedError

    def _enter(self) -> None:
        if self._block:
            self._block.is_entered = True


def _leave(permit: Any, *_: object) -> None:
    permit._was_held = not permit.is_lost
    try:
        if permit._is_checked:
            permit._was_held = permit.release()
        else:
            permit._gate.run(END, steps.end_block, permit._each)
    except (LuagateError, redis.RedisError) as failed:
        log_failed_release(permit, failed)
    permit._block = None  # nothing is left to do
