"""The steps of several semaphores at once, see `operation`."""

from typing import Any

from luagate import clock
from luagate.errors import AboveLimit, Denied, Invalid, LimitMismatch, Lost
from luagate.held import Held, deadline
from luagate.operation import GRACE, Operation, Steps, unknown
from luagate.request import Request
from luagate.settings import PERMANENT, Settings
from luagate.steps import made_permanent, refresh, wait

MOST_SEMAPHORES = 64  # the most semaphores that `several` takes
RENEWING = 0.005  # seconds between two looks whether a renewal has ended
Wants = list[tuple[Settings, int]]


def check(wants: Wants) -> None:
    if not 1 <= len(wants) <= MOST_SEMAPHORES:
        raise Invalid(f"several: got {len(wants)} semaphores. Accepted: 1 to {MOST_SEMAPHORES}")
    keys = [settings.key for settings, _ in wants]
    for key in keys:
        if keys.count(key) > 1:
            raise Invalid(f"several: got {key} twice. Accepted: each semaphore once. Ask for more permits of it instead")


def try_acquire_several(operation: Operation, wants: Wants) -> Steps[list[Held]]:
    """Permits of all at once, in the order of the wants. Raises Denied."""
    tags = sorted({settings.tag for settings, _ in wants})
    if len(tags) > 1:
        accepted = "names with one hash tag, as {x}:a and {x}:b. For other names, call acquire"
        raise Invalid(f"try_acquire: got the hash tags {', '.join(tags)}. Accepted: {accepted}")
    requests: list[Request] = []
    for settings, permits in wants:
        requests.append(Request(operation, settings, permits, requests[0].id if requests else None))
    while True:
        held = yield from _ask(operation, requests)
        if all(one.remaining for one in held):  # otherwise this process was paused for longer than a lease
            for one in held:
                operation.session.counts.grant(waited=False)
                yield from made_permanent(operation, one)
            return held
        yield from operation.pause_lost()


def _ask(operation: Operation, requests: list[Request]) -> Steps[list[Held]]:
    keys: list[str] = []
    argv: list[Any] = [requests[0].id]
    asked = clock.now()
    for request in requests:
        settings = request.settings
        keys += settings.keys
        argv += [request.permits, settings.limit, settings.first_lease_ms, settings.at_least_ms]
        request.is_clean = False
    script = operation.session.scripts["semaphore/try_acquire_several"]
    reply = yield from operation.call_with(script, keys, argv)
    rows = reply.permits if reply.word in ("granted", "held") else getattr(reply, "usages", requests)
    if len(rows) != len(requests) or not 1 <= getattr(reply, "index", 1) <= len(requests):
        raise script.unexpected(reply)
    if reply.word in ("above_limit", "denied"):
        if reply.word == "denied":
            operation.session.counts.denied.add()
        for request in requests:  # still held: by an earlier run of this call, whose reply was lost
            request.is_clean = not (reply.still_held or operation.is_unsure)
        raise _refusal(requests[reply.index - 1], reply)
    held = []
    for request, (permits, fence, expires_at, _, limit) in zip(requests, reply.permits):
        settings = request.settings
        if settings.strict and limit != settings.limit:
            raise LimitMismatch(settings.key, settings.limit, limit)
        end = deadline(asked, expires_at, reply.now)
        held.append(Held(settings, request.id, 0, permits, limit, fence, expires_at, end))
        held[-1].is_unsure = operation.is_unsure
    return held


def _refusal(request: Request, reply: Any) -> AboveLimit | Denied:
    key = request.settings.key
    if reply.word == "above_limit":
        return AboveLimit(key, request.permits, reply.limit)
    next_expiry = None if reply.next_expiry == -1 else reply.next_expiry / 1000
    in_use, limit, waiting = reply.usages[reply.index - 1]
    return Denied(key, in_use, limit, waiting, next_expiry)


def acquire_several(operation: Operation, wants: Wants) -> Steps[list[Held]]:
    """Waits in line for permits of all, one semaphore after the other. Returns them in the order of the wants.

    The order of the waits is by limit, the smallest first, then by key. All clients use it, so no two callers wait for each
    other. Permits that are already held are renewed meanwhile. If one of them is lost, the wait ends.
    """
    agenda, held = operation.session.agenda, []

    def lost(one: Held) -> None:
        operation.mailbox.put_nowait(Lost(f"several: the lease of {one.settings.key} ended during the wait"))

    try:
        for settings, permits in sorted(wants, key=lambda want: (want[0].limit, want[0].key.encode())):
            one = yield from wait(operation, Request(operation, settings, permits))
            one.auto_renew, one.on_lost = True, lost
            agenda.add(one)
            held.append(one)
        operation.end, operation.usage = max(operation.end, clock.now() + GRACE), unknown(operation.name)
        for one in held[:-1]:
            yield from refresh(operation, one)
        for one in held:  # only now: a crash during the wait leaves nothing held for ever
            yield from _renewed_no_longer(operation, one)
            yield from made_permanent(operation, one)
        if not all(one.remaining for one in held):
            keys = ", ".join(settings.key for settings, _ in wants)
            raise Lost(f"several: a lease ended before the permits of all of {keys} were granted")
    finally:
        for one in held:
            agenda.remove(one)
            one.auto_renew, one.on_lost = one.settings.is_renewed, None
    return [next(one for one in held if one.settings is settings) for settings, _ in wants]


def _renewed_no_longer(operation: Operation, held: Held) -> Steps[None]:
    """Ends the renewal of a permit that becomes permanent: a late renewal would replace that lease."""
    if held.settings.lease is PERMANENT:
        agenda = operation.session.agenda
        agenda.remove(held)
        while agenda.is_renewing(held):
            yield from operation.pause(RENEWING)


def refresh_each(operation: Operation, held: list[Held]) -> Steps[None]:
    for one in held:
        yield from refresh(operation, one)
