"""The steps of each operation on one semaphore, see `operation`."""

from types import SimpleNamespace
from typing import Any

import redis
from luagate import clock
from luagate.errors import Denied, Lost, LuagateError, TimedOut
from luagate.held import Held
from luagate.operation import GRACE, Operation, Steps
from luagate.posted import Posted
from luagate.request import Claim, Request
from luagate.settings import PERMANENT, Settings

PAGE = 1000  # the most holders and the most waiters that one call of `inspect` returns
FROM_WRITER = 1  # the permits that a writer keeps when it becomes a reader


def try_acquire(operation: Operation, settings: Settings, permits: int) -> Steps[Held]:
    """Permits at once. Raises Denied."""
    request = Request(operation, settings, permits)
    while (held := (yield from request.ask())) is None:
        if not request.is_granted:
            operation.session.counts.denied.add()
            raise Denied(*operation.usage)
        yield from operation.pause_lost()
    operation.session.counts.grant(waited=False)
    return (yield from made_permanent(operation, held))


def acquire(operation: Operation, settings: Settings, permits: int) -> Steps[Held]:
    """Waits in line for permits."""
    held = yield from wait(operation, Request(operation, settings, permits))
    return (yield from made_permanent(operation, held))


def wait(operation: Operation, request: Request) -> Steps[Held]:
    held = yield from request.wait()
    if held is None:  # The last call takes a grant whose message has not arrived yet, or leaves the line.
        operation.end = clock.now() + GRACE
        held = yield from request.ask()
    counts = operation.session.counts
    if held is None:
        counts.denied.add()
        raise TimedOut(*operation.usage, operation.timeout)
    counts.grant(waited=held.ticket > 0)
    return held


def made_permanent(operation: Operation, held: Held) -> Steps[Held]:
    """A permanent permit begins with an ordinary lease: the reply to its grant may be lost."""
    if held.settings.lease is PERMANENT:
        held.lease_ms = held.settings.lease_ms
        operation.end = max(operation.end, clock.now() + GRACE)
        yield from refresh(operation, held)
    return held


def refresh(operation: Operation, held: Held) -> Steps[None]:
    """Starts the lease anew."""
    if not held.is_of_this_process:
        raise held.lost()
    asked = clock.now()
    reply = yield from operation.call("refresh", held.settings.keys, id=held.id, lease_ms=held.lease_ms)
    try:
        held.refreshed(reply, asked)
    except Lost:
        if held.keeper:
            held.keeper.lose(held)
        raise
    if held.keeper:
        held.keeper.changed(held)


def release(operation: Operation, held: list[Held]) -> Steps[bool]:
    """Releases permits. Returns whether all were still held.

    The claims are made at once, not with the first step: if an interrupt comes before it, the release is sent all the same.
    """
    claims = []
    for one in held:
        if one.is_of_this_process:
            claims.append((_claim(operation, one), one, one.remaining > 0))
        end(one)
    return _release(operation, claims, len(claims) == len(held))


def _claim(operation: Operation, held: Held) -> Claim:
    claim = Claim(operation, held.settings, held.id, held.remaining)
    claim.is_clean = False
    return claim


def _release(operation: Operation, claims: list[tuple[Claim, Held, bool]], were_held: bool) -> Steps[bool]:
    for claim, held, was_held in claims:
        reply = yield from operation.call("release", claim.settings.keys, id=claim.id, keep=0)
        claim.is_clean = True
        # An earlier copy, whose reply was lost, may have released it.
        is_released = reply.word == "released" or was_held and claim.is_repeated
        were_held &= is_released
        if was_held and not is_released:
            held.count_loss()
        if held.is_unsure:
            operation.session.agenda.release_again(held)
    return were_held


def end_block(operation: Operation, permits: list[Any]) -> Steps[None]:
    """Releases the permits of a block. Does not wait for the replies, if there is an open connection.

    As for `release`, the claims are made at once.
    """
    all = []
    for permit in permits:
        held = permit._held
        if held.is_of_this_process:
            all.append(Posted(operation.session, _claim(operation, held), permit))
            if not all[-1].was_held and held.keeper:
                held.keeper.lose(held)
        end(held)
    return _end_block(operation, all)


def _end_block(operation: Operation, all: list[Posted]) -> Steps[None]:
    for posted in all:
        if not operation.session.post(posted):
            claim = posted.claim
            try:
                reply = yield from operation.call("release", claim.settings.keys, id=claim.id, keep=0)
            except (LuagateError, redis.RedisError) as error:
                posted.failed(error)  # so later calls of this name run after its repetition
                continue
            claim.is_clean = True
            posted.answered(reply)


def downgrade(operation: Operation, held: Held) -> Steps[None]:
    """A writer becomes a reader."""
    if not held.is_of_this_process:
        raise held.lost()
    reply = yield from operation.call("release", held.settings.keys, id=held.id, keep=FROM_WRITER)
    if reply.word != "released":
        if held.keeper:
            held.keeper.lose(held)
        raise held.lost()
    held.permits = FROM_WRITER


def end(held: Held) -> None:
    """It is released or lost, and no longer renewed."""
    if held.keeper:
        held.keeper.remove(held)
    held.end()


def revoke(operation: Operation, settings: Settings, id: str) -> Steps[bool]:
    """Releases whatever the id holds. Returns whether it held or waited."""
    reply = yield from operation.call("release", settings.keys, id=id, keep=0)
    return bool(reply.word != "gone")


def resize(operation: Operation, settings: Settings, limit: int) -> Steps[SimpleNamespace]:
    """Sets the limit for all callers."""
    reply = yield from operation.call("resize", settings.keys, limit=limit, expected=-1)
    if reply.word != "resized":
        raise operation.session.scripts["semaphore/resize"].unexpected(reply)
    return reply


def inspect(operation: Operation, settings: Settings) -> Steps[Any]:
    """The state, with all holders and waiters."""
    state = yield from operation.call("inspect", settings.keys, offset=0, count=PAGE)
    offset, page = PAGE, state
    while offset < max(state.holder_count, state.waiter_count) and (page.holders or page.waiters):
        page = yield from operation.call("inspect", settings.keys, offset=offset, count=PAGE)
        state.holders += page.holders
        state.waiters += page.waiters
        offset += PAGE
    return state
