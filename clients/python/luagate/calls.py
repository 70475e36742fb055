"""The calls of threads to the server.

A caller reads its own reply, on an open connection and at most until its deadline. Other threads do what can take longer: they open
connections, and make the calls of clients that do more than send a command.
"""

import queue
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import redis
from luagate import clock, failures
from luagate.operation import Job
from luagate.scripts import Commands

UNCHECKED = 1  # seconds after its last use in which a connection is taken to be open
IDLE = 30  # seconds: a thread without work ends after this time


class Calls:
    """The open connections of luagate's own client. One whose reply was not read completely is never used again."""

    def __init__(self, session: Any, workers: "Workers") -> None:
        self._session, self._workers = session, workers
        self._idle: deque[tuple[Any, float]] = deque()  # connections, and when they were used last
        self._busy: dict[Any, None] = {}  # the connections that callers read from
        # Other clients do more than send a command: that of a cluster finds the node, and a subclass may change the call.
        self._is_plain = type(session.client).execute_command is redis.Redis.execute_command

    def run(self, job: Job, until: float) -> None:
        """Runs a call: on this thread until this time, if a connection is certainly open; otherwise on another thread."""
        idle = self._idle
        try:
            connection, used = idle.pop()
        except IndexError:
            return self.run_elsewhere(job)
        now, handled, raised = clock.now(), sys.exc_info()[1], None
        if now - used >= UNCHECKED:
            idle.append((connection, used))
            return self.run_elsewhere(job)
        limit = min(until, now + connection.socket_timeout)
        self._busy[connection] = None
        try:
            if self._session.is_closed:
                raise redis.ConnectionError("this Luagate is closed")
            job.read(_converse(job.commands, partial(_ask, connection, limit)))
            self._keep(connection, job, idle)
        except (redis.RedisError, OSError) as error:
            now = clock.now()
            if now < limit and (raised := _of_handler(error, handled)):
                raise raised from None
            if now < until:  # otherwise this caller had less time than an attempt, which says nothing about other connections
                self._failed(error, self._session.own())
            job.error = error
        finally:
            self._busy.pop(connection, None)
            handled = raised = None  # its traceback refers to this frame
        job.is_done = True

    def run_elsewhere(self, job: Job) -> None:
        """Runs a call on another thread."""
        self._workers.put(partial(self._run, job))

    def _run(self, job: Job) -> None:
        session, idle, client = self._session, self._idle, None
        session.start_agenda()
        try:
            client = session.own()
            if self._is_plain:
                connection = _connection(client, idle)
                job.read(_converse(job.commands, partial(_ask, connection, clock.now() + connection.socket_timeout)))
                self._keep(connection, job, idle)
            else:
                job.read(_converse(job.commands, client.execute_command))
        except Exception as error:
            self._failed(error, client)
            job.end(error)
        else:
            job.end()

    @staticmethod
    def _keep(connection: Any, job: Job, idle: deque[tuple[Any, float]]) -> None:
        """Keeps the connection for other calls. After an unexpected reply, the next one may belong to this call."""
        if job.error is None:
            idle.append((connection, clock.now()))
        else:
            connection.disconnect()

    def _failed(self, error: Exception, client: Any) -> None:
        if failures.is_retried(error):
            self._idle = deque()  # the next calls connect anew
            self._session.failed(client, error)

    def close(self) -> None:
        """Ends the calls that wait for a reply."""
        for connection in list(self._busy):
            with suppress(Exception):
                connection._sock.shutdown(socket.SHUT_RDWR)


def _connection(client: Any, idle: deque[tuple[Any, float]]) -> Any:
    """An open connection, or a new one."""
    with suppress(IndexError, redis.ConnectionError):
        connection, used = idle.pop()
        if clock.now() - used < UNCHECKED or not connection.can_read(0):  # otherwise the server has closed it
            return connection
        connection.disconnect()
    connection = client.connection_pool.make_connection()
    connection.connect()
    return connection


def _ask(connection: Any, until: float, *command: Any) -> Any:
    connection.send_command(*command)
    connection._sock.settimeout(max(0.001, until - clock.now()))
    return connection.read_response()


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
            thread = threading.Thread(target=self._run, args=(work,), name="luagate-call", daemon=True)
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
