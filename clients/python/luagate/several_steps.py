"""The rules of several semaphores at once. See `steps`."""

import contextlib
import time

import redis
from luagate.errors import Invalid, Lost
from luagate.held import Held, deadline
from luagate.steps import MOST_SEMAPHORES, Request, above_limit, acquire, call, refresh, release


def check(wants):
    """`wants`: pairs of settings and a number of permits."""
    if not 1 <= len(wants) <= MOST_SEMAPHORES:
        raise Invalid(f"several: got {len(wants)} semaphores. Accepted: 1 to {MOST_SEMAPHORES}")
    keys = [settings.key for settings, _ in wants]
    for key in keys:
        if keys.count(key) > 1:
            raise Invalid(f"several: got {key} twice. Accepted: each semaphore once. Ask for more permits of it instead")


def try_acquire_several(gate, wants):
    """Permits of all at once, in the order of the wants; or None."""
    tags = sorted({settings.tag for settings, _ in wants})
    if len(tags) > 1:
        accepted = "names with one hash tag, as {x}:a and {x}:b. For other names, call acquire"
        raise Invalid(f"try_acquire: got the hash tags {', '.join(tags)}. Accepted: {accepted}")
    requests = [Request(gate, settings, permits) for settings, permits in wants]
    for request in requests:
        request.id = requests[0].id
    try:
        return (yield from _ask(gate, requests))
    except BaseException as error:
        for request in requests:
            yield "finish", request.abandon(), error
        raise


def _ask(gate, requests):
    keys, argv, asked = [], [requests[0].id], time.monotonic()
    for request in requests:
        settings = request.settings
        keys += settings.keys
        argv += [request.permits, settings.limit, settings.lease_ms, settings.at_least_ms]
    reply = yield from call(gate.scripts, "semaphore/try_acquire_several", keys, argv)
    if reply.word == "above_limit":
        above = requests[reply.index - 1]
        raise above_limit(above.settings, above.permits, reply.limit)
    if reply.word == "denied":
        if reply.still_held:  # by an earlier run of this call, whose reply was lost
            for request in requests:
                yield from request.abandon()
        return None
    grants = zip(requests, reply.permits)
    return [
        Held(request.settings, request.id, 0, permits, fence, expires_at, deadline(asked, expires_at, reply.now))
        for request, (permits, fence, expires_at, *_) in grants
    ]


def acquire_several(gate, wants, timeout, end):
    """Waits in line for permits of all, one semaphore after the other. Returns them in the order of the wants.

    The order of the waits is by limit, the smallest first, then by key. All clients use it, so no two callers wait for each
    other. Permits that are already held are renewed meanwhile. If one of them is lost, the wait ends.
    """
    held, waiting = [], []

    def lost(one):
        if waiting:
            waiting[-1].events.put_nowait(Lost(f"several: the lease of {one.settings.key} ended during the wait"))

    try:
        for settings, permits in sorted(wants, key=lambda want: (want[0].limit, want[0].key.encode())):
            one = yield from acquire(gate, settings, permits, timeout, end, waiting.append)
            one.auto_renew, one.on_lost = True, lost
            gate.keeper.add(one)
            held.append(one)
        waiting.clear()
        for one in held[:-1]:
            yield from refresh(gate, one)
        if not all(one.remaining for one in held):
            raise Lost(f"several: a lease ended before the permits of all of {', '.join(w.key for w, _ in wants)} were granted")
    except BaseException as error:
        yield "finish", release_each(gate, held), error
        raise
    for one in held:
        gate.keeper.remove(one)
        one.auto_renew, one.on_lost = one.settings.is_renewed, None
    return [next(one for one in held if one.settings is settings) for settings, _ in wants]


def release_each(gate, held):
    """Releases all permits, whatever happens. Errors of the server are ignored: the leases end."""
    for one in held:
        with contextlib.suppress(redis.RedisError):
            yield from release(gate, one)


def refresh_each(gate, held):
    for one in held:
        yield from refresh(gate, one)


def release_each(gate, held):
    """Releases all, and returns whether all were still held. Raises the last error of the server at the end."""
    were_held, failed = True, None
    for one in held:
        try:
            were_held &= yield from release(gate, one)
        except redis.RedisError as error:
            failed = error
    if failed:
        raise failed
    return were_held
