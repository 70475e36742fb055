"""A scene, played by threads: workers ask, hold and give back, until the time is over."""

import json
import os
import random
import sys
import threading
import time
from types import SimpleNamespace


def scene():
    """What the arguments of the program ask for; the README of the folder `peers` tells them."""
    url, workers, permits, hold_us, seconds, turns = sys.argv[1:]
    return SimpleNamespace(
        url=url,
        workers=int(workers),
        permits=int(permits),
        hold=int(hold_us) / 1e6,
        seconds=float(seconds),
        once=turns == "once",  # each takes one turn, then waits until all have; otherwise it asks again at once
    )


def fail(what):
    """A worker that stops would only make the others faster."""
    threading.__excepthook__(what)
    os._exit(1)


def play(scene, locks, enter, leave):
    """`enter` is given the number of a lock, below `locks`, and `leave` what it returned."""
    threading.excepthook = fail
    print("ready", flush=True)
    sys.stdin.readline()
    start, end, stays = time.monotonic(), time.monotonic() + scene.seconds, []

    def now():
        return int((time.monotonic() - start) * 1e6)

    def work():
        while True:
            lock, asked = random.randrange(locks), now()
            permit = enter(lock)
            entered = now()
            if scene.hold:
                time.sleep(scene.hold)
            stays.append((lock, asked, entered, now()))
            leave(permit)
            if scene.once or time.monotonic() >= end:
                break

    while time.monotonic() < end:
        workers = [threading.Thread(target=work) for _ in range(scene.workers)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    print(json.dumps({"stays": stays}), flush=True)
