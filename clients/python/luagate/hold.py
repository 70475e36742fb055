"""What `hold` returns: a block that acquires and releases, or a decorator that does so for each call of a function."""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import wraps
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

from luagate.settings import refuse

H = TypeVar("H")  # what is held
A = ParamSpec("A")
R = TypeVar("R")


class Hold(AbstractContextManager[H], Generic[H]):
    """For threads. `make`: makes a block that has not begun."""

    def __init__(self, make: Callable[[], AbstractContextManager[H]]) -> None:
        self._make, self._block = make, make()  # which can be used once

    def __enter__(self) -> H:
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)

    def __call__(self, function: Callable[A, R]) -> Callable[A, R]:
        if inspect.iscoroutinefunction(function) or _makes_values(function):
            # A call returns before its work ends.
            refuse("hold", function, "a function that is neither async nor a generator. For those use luagate.aio, or a block in them")

        @wraps(function)
        def holding(*args: A.args, **kwargs: A.kwargs) -> R:
            with self._make():
                return function(*args, **kwargs)

        return holding


class AsyncHold(AbstractAsyncContextManager[H], Generic[H]):
    """The same for asyncio."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[H]]) -> None:
        self._make, self._block = make, make()  # which can be used once

    async def __aenter__(self) -> H:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)

    def __call__(self, function: Callable[A, Awaitable[R]]) -> Callable[A, Awaitable[R]]:
        if not inspect.iscoroutinefunction(function) or _makes_values(function):
            refuse("hold", function, "an async function that is no generator. In others use a block, or luagate.Luagate for threads")

        @wraps(function)
        async def holding(*args: A.args, **kwargs: A.kwargs) -> R:
            async with self._make():
                return await function(*args, **kwargs)

        return holding


def _makes_values(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
