"""Greenlets. Arguments: the package, and whether it patches before or after luagate is imported, or after a gate was used."""

import faulthandler
import os
import sys
import time

package, when = sys.argv[1:]
faulthandler.dump_traceback_later(60, exit=True)
LEASE = 1


def patch():
    if package == "gevent":
        import gevent.monkey

        gevent.monkey.patch_all()
    else:
        import eventlet

        eventlet.monkey_patch()


if when == "before":
    patch()

import luagate  # noqa: E402
import redis  # noqa: E402


def new_gate():
    return luagate.Luagate(redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=2), f"{package}:{when}")


gate = new_gate()
if when == "used":
    gate.mutex("m").try_acquire().release()
if when != "before":
    patch()
if when == "used":
    try:
        gate.mutex("m").try_acquire()
        sys.exit("the gate is used")
    except luagate.Invalid as error:
        assert "Patch" in str(error), error
    gate = new_gate()

if package == "gevent":
    from gevent import sleep, spawn
else:
    from eventlet import sleep, spawn

inside, most, longest = 0, 0, 0.0


def watch():
    """Measures how long one greenlet keeps the others from running."""
    global longest
    while True:
        began = time.monotonic()
        sleep(0.01)
        longest = max(longest, time.monotonic() - began)


def work(done):
    global inside, most
    with gate.semaphore("s", 5).acquire(timeout=20):
        inside += 1
        most = max(most, inside)
        sleep(0.02)
        inside -= 1
    done.append(None)


spawn(watch)
done = []
for _ in range(50):
    spawn(work, done)
while len(done) < 50:
    sleep(0.01)
assert 1 < most <= 5, most

mutex = gate.mutex("m", lease=LEASE, auto_renew=True)
permit = mutex.acquire(timeout=2)
try:
    mutex.acquire(timeout=1)
    sys.exit("two hold the mutex")
except luagate.TimedOut:
    pass
sleep(2 * LEASE)
assert not permit.is_lost and mutex.inspect().in_use == 1, "the permit was not renewed"
waiting = spawn(mutex.acquire, timeout=30)
while not mutex.inspect().waiters:
    sleep(0.01)
waiting.kill()
while mutex.inspect().waiters:
    sleep(0.01)
assert permit.release(), "the permit was lost"
assert mutex.inspect().in_use == 0
assert longest < 0.5, f"a call kept the other greenlets from running for {longest:.1f} s"
gate.close()
