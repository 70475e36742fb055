"""The calls of threads to the server. They run on other threads, so a caller never waits for the network itself.

This holds on the main thread too: redis-py would take an error of a signal handler for one of the network, and hide it.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import redis
from luagate import failures
from luagate.operation import Job
from luagate.scripts import Commands

UNCHECKED = 1  # seconds after its last use in which a connection is taken to be open
IDLE = 30  # seconds: a thread without work ends after this time


class Calls:
    """The open connections of luagate's own client."""

    def __init__(self, session: Any, workers: "Workers") -> None:
        self._session, self._workers = session, workers
        self._idle: deque[tuple[Any, float]] = deque()  # connections, and when they were used last
        # Other clients do more than send a command: that of a cluster finds the node, and a subclass may change the call.
        self._is_plain = type(session.client).execute_command is redis.Redis.execute_command

    def start(self, job: Job) -> None:
        """Runs a call on another thread."""
        self._workers.put(partial(self._run, job))

    def _run(self, job: Job) -> None:
        session, idle, client = self._session, self._idle, None
        session.start_agenda()
        try:
            client = session.own()
            if self._is_plain:
                connection = _connection(client, idle)
                value = _converse(job.commands, partial(_ask, connection))
                idle.append((connection, time.monotonic()))
            else:
                value = _converse(job.commands, client.execute_command)
        except Exception as error:
            if failures.is_retried(error):
                self._idle = deque()  # the next calls connect anew
                session.failed(client, failures.is_read_only(error))
            job.end(None, error)
        else:
            job.end(value)


def _connection(client: Any, idle: deque[tuple[Any, float]]) -> Any:
    """An open connection, or a new one."""
    with suppress(IndexError, redis.ConnectionError):
        connection, used = idle.pop()
        if time.monotonic() - used < UNCHECKED or not connection.can_read(0):  # otherwise the server has closed it
            return connection
        connection.disconnect()
    connection = client.connection_pool.make_connection()
    connection.connect()
    return connection


def _ask(connection: Any, *command: Any) -> Any:
    connection.send_command(*command)
    return connection.read_response()


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
            threading.Thread(target=self._run, args=(work,), name="luagate-call", daemon=True).start()
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
