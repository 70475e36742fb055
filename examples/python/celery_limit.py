"""A Celery task that runs at most three times at the same time, over all worker processes and machines.

    pip install ./clients/python 'celery[redis]'
    cd examples/python && celery -A celery_limit worker --concurrency 8 --loglevel INFO    # REDIS_URL is the Redis server
    python -c 'import celery_limit; [celery_limit.export.delay(number) for number in range(20)]'

A task that gets no permit within WAIT seconds goes back to the queue, so its process is free for other tasks. The gate is
made before Celery forks its processes: each of them uses connections of its own. If a process is killed, its permit
becomes free when its lease ends, after at most 30 s. WORK_S is the duration of a task in seconds.
"""

import functools
import os
import random
import time
from collections.abc import Callable
from typing import Any

import redis
from celery import Celery, Task
from celery.signals import worker_process_shutdown
from celery.utils.log import get_task_logger
from luagate import LineFull, Lost, Luagate, Permit, Semaphore, TimedOut, Unreachable

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1/")
WORK = float(os.environ.get("WORK_S", "1"))
WAIT = 5
LOG = get_task_logger(__name__)

app = Celery("exports", broker=URL)
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)  # a process takes a task when it can work on it
gate = Luagate(redis.Redis.from_url(URL))


@worker_process_shutdown.connect
def close(**_: Any) -> None:
    gate.close()


def limited(semaphore: Semaphore) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Runs a task only under a permit, which is its first argument. Below `app.task(bind=True)`."""

    def decorate(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def call(task: Task, *arguments: Any, **named: Any) -> Any:
            try:
                permit = semaphore.acquire(timeout=WAIT)
            except (TimedOut, LineFull, Unreachable) as why:
                raise task.retry(exc=why, countdown=random.uniform(1, 3), max_retries=None) from why
            with permit:
                return work(permit, *arguments, **named)

        return call

    return decorate


@app.task(bind=True)
@limited(gate.semaphore("exports", 3))
def export(permit: Permit, number: int) -> None:
    LOG.info("export %s begins", number)
    for _ in range(10):
        if permit.is_lost:  # another task may have the permit now, so this one ends
            raise Lost(f"export {number} has lost its permit")
        time.sleep(WORK / 10)  # a step of the work
    LOG.info("export %s ends", number)
