"""The calls of asyncio to the server. Each call has a connection of its own while it runs."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import redis
import redis.asyncio
from luagate import clock, failures
from luagate.operation import Job
from luagate.posted import LATE, READ_AFTER, SLICE, Line, Posted, before
from luagate.scripts import Commands

BROKEN = redis.ConnectionError("the connection was closed")


class Calls:
    """The open connections of luagate's own client. One whose reply was not read completely is never used again.

    `start`: runs a coroutine in the background.
    """

    def __init__(self, session: Any, start: Callable[[Any, str], object]) -> None:
        self._session, self._start = session, start
        self._idle: deque[Line] = deque()
        self._broken = 0  # the connections that have failed, and were not replaced yet
        self._timer: asyncio.TimerHandle | None = None  # after which replies of posted releases are read
        # Other clients do more than send a command, as for threads.
        self.is_plain = type(session.client).execute_command is redis.asyncio.Redis.execute_command

    async def run(self, job: Job, client: Any) -> None:
        line = (await self._take(job)) or self._open_line() or await self._connect(client)
        try:
            await self._send_ahead(job, line)
            job.last_delay = self._session.last_delay
            job.read(await converse(partial(_ask, line), job.commands))
        except BaseException as error:
            if isinstance(error, Exception) and failures.is_retried(error) and error is not LATE:
                self.broke()
            self._drop(line, error if isinstance(error, Exception) else BROKEN)
            raise
        self._keep(line, job.error)

    def failed(self, error: Exception) -> None:
        """A call has failed: the next calls connect anew."""
        others, self._idle = self._idle, deque()
        for other in others:
            self._drop(other, error)

    def broke(self) -> None:
        """A connection has failed."""
        self._broken += 1

    def replaced(self) -> None:
        """A connection is open. Counts it, if another one has failed."""
        if self._broken:
            self._broken -= 1
            self._session.counts.reconnects.add()

    def close(self) -> None:
        while self._idle:
            self._drop(self._idle.pop(), BROKEN)
        if self._timer:
            self._timer.cancel()

    # --- Connections ---

    def _open_line(self) -> Line | None:
        """The idle connection that was used last."""
        while self._idle:
            line = self._idle.pop()
            if _is_open(line.connection):
                return line
            self.broke()
            self._drop(line, BROKEN)
        return None

    async def _connect(self, client: Any) -> Line:
        idle, connection = self._idle, client.connection_pool.make_connection()
        await connection.connect()
        self.replaced()
        return Line(connection, idle)

    def _keep(self, line: Line, error: Exception | None = None) -> None:
        """Keeps the connection for other calls. After an unexpected reply, the next one may belong to this call."""
        if error or line.idle is not self._idle:
            self._drop(line, error or BROKEN)
        else:
            line.idle.append(line)

    @staticmethod
    def _drop(line: Line, error: Exception) -> None:
        connection = line.connection
        if connection._writer:
            with suppress(Exception):
                connection._writer.close()
            connection._reader = connection._writer = None
        line.fail(error)

    # --- Posted releases ---

    def post(self, posted: Posted) -> bool:
        """Sends the release of a block. False: no connection is open."""
        if not self.is_plain or self._session.is_closed:
            return False
        line = self._open_line()
        if line is None:
            return False
        posted.sent(line)
        try:
            _send(line, *posted.command())
        except Exception as error:
            self.broke()
            self._drop(line, error)
            return True
        self._keep(line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(READ_AFTER, self.read_posted)
        return True

    def read_posted(self) -> None:
        """Reads the replies that no call reads."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        for one in list(self._session.posted):
            if one.line:
                self._read(one.line)

    def _read(self, line: Line) -> None:
        if line.take():
            self._start(self._read_all(line), "luagate-call")

    async def _read_all(self, line: Line) -> None:
        try:
            await _read_posted(line)
        except BaseException as error:
            self.broke()
            self._drop(line, error if isinstance(error, Exception) else BROKEN)
            if not isinstance(error, Exception):
                raise
        else:
            self._keep(line)

    async def _take(self, job: Job) -> Line | None:
        """The connection on which a call runs after the posted releases of its name. Waits for those on others."""
        if not (posted := before(job, self._session)):
            return None
        for one in posted[:-1]:
            await self._await(one, job.until)
        if (line := posted[-1].line) and line.take():
            return line
        await self._await(posted[-1], job.until)
        return None

    async def _send_ahead(self, job: Job, line: Line) -> None:
        """Repeats the failed releases of the name ahead of this call. Waits for those that others send."""
        for one in before(job, self._session):
            while not one.is_done and one.line is not line:
                if one.take():
                    one.sent(line)
                    _send(line, *one.command())
                elif clock.now() >= job.until:
                    raise LATE
                else:
                    await self._await(one, job.until)

    async def _await(self, posted: Posted, until: float) -> None:
        """Waits until it has ended, or must be repeated."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        posted.then(partial(_end, ended))
        while not posted.is_done and not posted.is_due and (left := until - clock.now()) > 0:
            if posted.line:
                self._read(posted.line)
            await asyncio.wait([ended], timeout=min(left, SLICE))


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _is_open(connection: Any) -> bool:
    reader, writer = connection._reader, connection._writer
    if reader is None or writer is None:
        return False
    return not (reader.at_eof() or reader.exception() or writer.is_closing())


def _send(line: Line, *command: Any) -> None:
    """Passes a command to the socket. Does not wait until it was sent: it is short."""
    connection = line.connection
    if not _is_open(connection):
        raise redis.ConnectionError("the server has closed the connection")
    connection._writer.writelines(connection.pack_command(*command))


async def _ask(line: Line, *command: Any) -> Any:
    _send(line, *command)
    await _read_posted(line)
    return await line.connection.read_response()


async def _read_posted(line: Line) -> None:
    """Reads the replies to the releases that were posted before."""
    while line.posted:
        try:
            reply = await line.connection.read_response()
        except redis.ResponseError as error:
            reply = error
        line.read(reply)


async def converse(ask: Callable[..., Any], commands: Commands) -> Any:
    """Sends the commands of a call, and returns its result."""
    try:
        command = next(commands)
        while True:
            try:
                reply = await ask(*command)
            except Exception as error:
                command = commands.throw(error)
            else:
                command = commands.send(reply)
    except StopIteration as end:
        return end.value
