"""Runs a scene with threads: workers acquire, hold and release until the time is over."""

import json
import os
import random
import sys
import threading
import time
from types import SimpleNamespace


def scene():
    """The arguments of the program; the README of the folder `peers` describes them."""
    url, workers, permits, hold_us, seconds, turns = sys.argv[1:]
    return SimpleNamespace(
        url=url,
        workers=int(workers),
        permits=int(permits),
        hold=int(hold_us) / 1e6,
        seconds=float(seconds),
        once=turns == "once",  # each worker takes one turn, then waits for all others; otherwise it asks again at once
    )


def fail(what):
    """Ends the program: without a failed worker the others would be faster, and the figures wrong."""
    threading.__excepthook__(what)
    os._exit(1)


def play(scene, locks, enter, leave):
    """`enter` receives the number of a lock, below `locks`; `leave` receives what `enter` returned."""

    def block(lock, hold):
        permit = enter(lock)
        hold()
        leave(permit)

    play_blocks(scene, locks, block)


def play_blocks(scene, locks, block):
    """`block` receives the number of a lock, below `locks`, and a function that holds it for its time."""
    threading.excepthook = fail
    print("ready", flush=True)
    sys.stdin.readline()
    start, end, stays = time.monotonic(), time.monotonic() + scene.seconds, []

    def now():
        return int((time.monotonic() - start) * 1e6)

    def work():
        while True:
            lock, asked = random.randrange(locks), now()

            def hold():
                entered = now()
                if scene.hold:
                    time.sleep(scene.hold)
                stays.append((lock, asked, entered, now()))

            block(lock, hold)
            if scene.once or time.monotonic() >= end:
                break

    while time.monotonic() < end:
        workers = [threading.Thread(target=work) for _ in range(scene.workers)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    print(json.dumps({"stays": stays}), flush=True)
