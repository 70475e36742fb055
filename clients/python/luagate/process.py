"""Which process this is, and threads that do not keep it from ending."""

import importlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_forks = 0


def number() -> int:
    """A number that a fork changes in the child. Reading it is cheaper than `os.getpid`."""
    return _forks


def _count() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


def _is_subinterpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # Python 3.13 and later; earlier
        with suppress(ImportError, AttributeError):
            interpreters = importlib.import_module(name)
            return bool(interpreters.get_current() != interpreters.get_main())
    return False


_IS_SUBINTERPRETER = _is_subinterpreter()


def thread(work: Callable[..., object], *arguments: Any, name: str) -> threading.Thread:
    """A thread of luagate, to be started. It is a daemon, except in a subinterpreter.

    An isolated subinterpreter forbids daemons. Another one aborts the process if a daemon still runs at its end.
    """
    return threading.Thread(target=work, args=arguments, name=name, daemon=not _IS_SUBINTERPRETER)


def at_end(close: Callable[[], object]) -> None:
    """Calls this when a subinterpreter ends, before it waits for its threads."""
    if _IS_SUBINTERPRETER and (register := getattr(threading, "_register_atexit", None)):
        with suppress(RuntimeError):  # it ends already
            register(close)
