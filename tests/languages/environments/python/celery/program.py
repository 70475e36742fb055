"""Starts a worker of Celery, and gives it 60 tasks. Argument: the pool."""

import subprocess
import sys

import tasks

command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", sys.argv[1], "--concurrency", "12", "--loglevel", "ERROR"]
worker = subprocess.Popen(command)
try:
    results = [tasks.work.delay() for _ in range(60)]
    inside = [result.get(timeout=60) for result in results]
    assert 1 < max(inside) <= 3, inside
    assert tasks.semaphore.inspect().in_use == 0
finally:
    worker.terminate()
    worker.wait()
