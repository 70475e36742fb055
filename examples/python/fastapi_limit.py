"""A web service on FastAPI that works on five reports at a time, over all its processes and machines.

    pip install ./clients/python 'fastapi>=0.118' uvicorn
    cd examples/python && uvicorn fastapi_limit:app --workers 2    # REDIS_URL is the address of the Redis server
    curl -i http://127.0.0.1:8000/report                           # 200, or after 2 s in line 429 with Retry-After
    curl -i http://127.0.0.1:8000/health                           # has no limit

The permit is held until the body of the response has been sent or the client has gone. (Before FastAPI 0.118 it would be
released before the body is sent.) WORK_S is the duration of the work for each of the ten rows of a report in seconds, and
WAIT_S the longest wait.
"""

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import redis.asyncio
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from luagate import LineFull, LuagateError, TimedOut
from luagate.aio import Luagate, Permit

LOG = logging.getLogger("uvicorn.error")
WORK = float(os.environ.get("WORK_S", "0.05"))
WAIT = float(os.environ.get("WAIT_S", "2"))
USUAL = 10 * WORK  # the usual duration of a request, for Retry-After

gate = Luagate(redis.asyncio.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1/")))  # connects when it is used


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with gate:  # the end waits for releases in the background
        yield


async def permit() -> AsyncIterator[Permit]:
    """A permit for the request, as a dependency of a route."""
    request = asyncio.current_task()
    assert request
    # If more than 100 requests wait in line, the next ones get 429 at once. If the permit is lost, another request may have
    # it, so the work is cancelled.
    reports = gate.semaphore("report", 5, max_waiting=100, on_lost=lambda _: request.cancel())
    try:
        permit = await reports.acquire(timeout=WAIT)
    except LuagateError as why:
        # With a cause, the server of the semaphore did not answer.
        if not isinstance(why, (TimedOut, LineFull)) or why.__cause__:
            LOG.error("a request was refused: %s", why)
            raise HTTPException(503, "try again later") from why
        seconds = math.ceil(why.retry_after(USUAL))  # the header has whole seconds
        raise HTTPException(429, "busy", {"Retry-After": str(seconds)}) from why
    async with permit:
        yield permit


app = FastAPI(lifespan=lifespan)


@app.get("/report")
async def report(_: Annotated[Permit, Depends(permit)]) -> StreamingResponse:
    async def rows() -> AsyncIterator[str]:
        for number in range(1, 11):
            await asyncio.sleep(WORK)  # in place of a query
            yield f"row {number}\n"

    return StreamingResponse(rows(), media_type="text/plain")


@app.get("/health")
async def health() -> str:
    return "healthy"
