"""The calls of threads to the server.

A caller reads its own reply, on an open connection and at most until its deadline. Other threads do what can take longer: they open
connections, and make the calls of clients that do more than send a command.
"""

import contextvars
import queue
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import redis
from luagate import clock, failures, process
from luagate.operation import Job
from luagate.posted import ORDER, READ_AFTER, Line, Posted, of_key
from luagate.scripts import Commands

UNCHECKED = 1  # seconds after its last use in which a connection is taken to be open
OVERDUE = 0.5  # seconds after which a posted release is repeated, if nobody reads its reply
SLICE = 0.005  # seconds between two looks at a posted release that another thread reads
BROKEN = redis.ConnectionError("the connection was closed")
IDLE = 30  # seconds: a thread without work ends after this time


class Calls:
    """The open connections of luagate's own client. One whose reply was not read completely is never used again."""

    def __init__(self, session: Any, workers: "Workers") -> None:
        self._session, self._workers = session, workers
        self._idle: deque[Line] = deque()
        self._busy: dict[Line, None] = {}  # those that callers read from
        self._broken: deque[None] = deque()  # an entry for each connection that has failed, and was not replaced yet
        self._is_reading = False  # a thread reads the replies of posted releases
        # Other clients do more than send a command: that of a cluster finds the node, and a subclass may change the call.
        self._is_plain = type(session.client).execute_command is redis.Redis.execute_command

    def run(self, job: Job, until: float) -> None:
        """Runs a call: on this thread until this time, if a connection is certainly open; otherwise on another thread."""
        line = self._take(job.key, until)
        if line is None:
            return self.run_elsewhere(job)
        now, handled, raised, is_kept = clock.now(), sys.exc_info()[1], None, False
        if now - line.used >= UNCHECKED:
            line.idle.append(line)
            return self.run_elsewhere(job)
        limit = min(until, now + line.connection.socket_timeout)
        self._busy[line] = None
        try:
            if self._session.is_closed:
                raise redis.ConnectionError("this Luagate is closed")
            job.read(_converse(job.commands, partial(_ask, line, limit)))
            self._busy.pop(line, None)
            is_kept = True
            self._keep(line, job.error)
        except (redis.RedisError, OSError) as error:
            now = clock.now()
            if now < limit and (raised := _of_handler(error, handled)):
                raise raised from None
            if now < until:  # otherwise this caller had less time than an attempt, which says nothing about other connections
                self._failed(error, self._session.own(), line)
            job.error = error
        finally:
            if not is_kept:
                self._busy.pop(line, None)
                line.fail(job.error or BROKEN)
            handled = raised = None  # its traceback refers to this frame
        job.is_done = True

    def run_elsewhere(self, job: Job) -> None:
        """Runs a call on another thread, in the context of this one: a tracer may want to know the caller."""
        self._workers.put(partial(contextvars.copy_context().run, self._run, job))

    def _run(self, job: Job) -> None:
        session, client, line = self._session, None, None
        session.start_agenda()
        try:
            client = session.own()
            if self._is_plain:
                line = self._connection(client)
                job.read(_converse(job.commands, partial(_ask, line, clock.now() + line.connection.socket_timeout)))
                self._keep(line, job.error)
            else:
                job.read(_converse(job.commands, client.execute_command))
                self._replaced()
        except Exception as error:
            self._failed(error, client, line)
            job.end(error)
        else:
            job.end()

    def _keep(self, line: Line, error: Exception | None = None) -> None:
        """Keeps the connection for other calls. After an unexpected reply, the next one may belong to this call.

        As soon as it is idle, another thread may take it. So its last owner does not touch it after an interrupt here.
        """
        if error or line.idle is not self._idle:
            line.connection.disconnect()
            line.fail(error or BROKEN)
        else:
            line.used = clock.now()
            line.idle.append(line)

    def _failed(self, error: Exception, client: Any, line: Line | None) -> None:
        if line:
            line.fail(error)
        if failures.is_retried(error):
            if line or not self._is_plain and self._session.has_answered:
                self._broken.append(None)
            others, self._idle = self._idle, deque()  # the next calls connect anew
            for other in others:
                other.fail(error)
            self._session.failed(client, error)

    def _replaced(self) -> None:
        """A connection is open. Counts it, if another one has failed."""
        with suppress(IndexError):
            self._broken.pop()
            self._session.counts.reconnects.add()

    def _connection(self, client: Any) -> Line:
        """An open connection, or a new one."""
        with suppress(IndexError, redis.ConnectionError):
            line = self._idle.pop()
            if clock.now() - line.used < UNCHECKED or self._is_open(line):
                return line
            line.connection.disconnect()
            line.fail(BROKEN)
            self._broken.append(None)
        connection = client.connection_pool.make_connection()
        connection.connect()
        self._replaced()
        return Line(connection, self._idle)

    @staticmethod
    def _is_open(line: Line) -> bool:
        """Whether the server has not closed an idle connection."""
        return not line.posted and not line.connection.can_read(0)

    def close(self) -> None:
        """Ends the calls that wait for a reply."""
        for line in list(self._busy):
            with suppress(Exception):
                line.connection._sock.shutdown(socket.SHUT_RDWR)

    # --- Posted releases ---

    def post(self, posted: Posted) -> bool:
        """Sends the release of a block. False: no connection is open."""
        if not self._is_plain or self._session.is_closed:
            return False
        try:
            line = self._idle.pop()
        except IndexError:
            return False
        handled, raised, is_kept = sys.exc_info()[1], None, False
        try:
            if clock.now() - line.used >= UNCHECKED and not self._is_open(line):
                self._broken.append(None)
                return False
            self._busy[line] = None
            posted.sent(line)
            line.connection.send_command(*posted.command())
            self._busy.pop(line, None)
            is_kept = True
            self._keep(line)
        except (redis.RedisError, OSError) as error:
            self._broken.append(None)
            if raised := _of_handler(error, handled):
                raise raised from None
        finally:
            if not is_kept:
                self._busy.pop(line, None)
                line.fail(BROKEN)
            if posted.line and not self._is_reading:
                self._workers.put(self._read_posted)
            handled = raised = None
        return True

    def _take(self, key: str, until: float) -> Line | None:
        """An idle connection on which a call runs after the posted releases of its name. Waits for those on others."""
        if posted := of_key(self._session, key):
            last = posted.pop()
            until = min(until, clock.now() + ORDER)
            for one in posted:
                self._await(one, until)
            if (line := last.line) and line.take():
                return line
            self._await(last, until)
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _await(self, posted: Posted, until: float) -> None:
        ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        posted.then(partial(ended.put, None))
        while not posted.is_done and (left := until - clock.now()) > 0:
            if (line := posted.line) and line.take():
                self._read(line, until)
            else:
                with suppress(queue.Empty):
                    ended.get(timeout=min(left, SLICE))

    def _read(self, line: Line, until: float) -> None:
        """Reads the replies to the posted releases on a connection that was idle."""
        self._busy[line], is_kept = None, False
        try:
            _read_posted(line, until)
            self._busy.pop(line, None)
            is_kept = True
            self._keep(line)
        except (redis.RedisError, OSError) as error:
            if clock.now() < until:
                self._failed(error, self._session.own(), line)
        finally:
            if not is_kept:
                self._busy.pop(line, None)
                line.fail(BROKEN)

    def _read_posted(self) -> None:
        """Reads the replies that no call reads, until there are none."""
        if self._is_reading:
            return
        self._is_reading = True
        session = self._session
        while sent := [one for one in list(session.posted) if one.line]:
            if not session.is_closed:
                time.sleep(READ_AFTER)
            for one in sent:
                if (line := one.line) is None:
                    continue
                now = clock.now()
                if line.take():
                    self._read(line, now + line.connection.socket_timeout)
                elif now - one.since > OVERDUE and line not in self._busy:  # an interrupt has ended the call that was reading
                    line.fail(BROKEN)
            time.sleep(SLICE)
        self._is_reading = False
        if any(one.line for one in list(session.posted)):  # sent meanwhile
            self._workers.put(self._read_posted)


def _ask(line: Line, until: float, *command: Any) -> Any:
    line.connection.send_command(*command)
    _read_posted(line, until)
    reply = _read(line, until)
    if line.is_failed:  # meanwhile: this may be the reply to a release
        raise BROKEN
    return reply


def _read_posted(line: Line, until: float) -> None:
    """Reads the replies to the releases that were posted before."""
    while line.posted:
        try:
            reply = _read(line, until)
        except redis.ResponseError as error:
            reply = error
        line.read(reply)


def _read(line: Line, until: float) -> Any:
    line.connection._sock.settimeout(max(0.001, until - clock.now()))
    return line.connection.read_response()


def _of_handler(error: BaseException | None, handled: BaseException | None) -> BaseException | None:
    """The error of a signal handler, if redis-py took it for one of the network. `handled`: an error from before the call.

    An error of the network has a number, except that the time is over.
    """
    while error and error is not handled:
        if isinstance(error, OSError) and error.errno is None:
            return error
        error = error.__context__
    return None


def _converse(commands: Commands, ask: Callable[..., Any]) -> Any:
    """Sends the commands of a call, and returns its result."""
    try:
        command = next(commands)
        while True:
            try:
                reply = ask(*command)
            except Exception as error:
                command = commands.throw(error)
            else:
                command = commands.send(reply)
    except StopIteration as end:
        return end.value


class Workers:
    """Threads that do work, as many as work at the same time. No lock is taken here."""

    def __init__(self) -> None:
        self.threads: dict[threading.Thread, None] = {}
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._idle: deque[None] = deque()  # an entry for each thread that waits for work

    def put(self, work: Callable[[], object]) -> None:
        try:
            self._idle.pop()
        except IndexError:
            thread = process.thread(self._run, work, name="luagate-call")
            try:
                thread.start()
            except KeyError as error:  # `start` replaces an error of a signal handler that comes after the thread has begun
                raise (error.__context__ or error) from None
            except RuntimeError:  # the interpreter ends, or the system has no more threads
                work()
        else:
            self._work.put(work)

    def close(self) -> None:
        for _ in list(self.threads):
            self._work.put(None)

    def _run(self, work: Callable[[], object] | None) -> None:
        self.threads[threading.current_thread()] = None
        while work:
            work()
            work = self._next()
        self.threads.pop(threading.current_thread(), None)

    def _next(self) -> Callable[[], object] | None:
        self._idle.append(None)
        while True:
            try:
                return self._work.get(timeout=IDLE)
            except queue.Empty:
                with suppress(IndexError):  # otherwise work is about to come
                    self._idle.pop()
                    return None
