"""The calls of one id for its permits, until they are granted or the caller gives up."""

import math
import os
import uuid
from typing import Any

from luagate import clock
from luagate.agenda import Release
from luagate.errors import MOST, AboveLimit, LimitMismatch, LineFull, Revoked
from luagate.held import Held, deadline
from luagate.inbox import ASK_AGAIN, OPENING, Inbox
from luagate.operation import OUTAGE, Operation, Steps, Usage, unknown
from luagate.settings import PERMANENT, Settings, check_number

PATIENCE = 15  # seconds: after a call, the server keeps a waiter's place for this time
RECHECK = 5  # seconds: a waiter asks again after this time at the latest
RECHECK_UNHEARD = 1  # seconds: the same while messages do not reach the client


class Claim:
    """The permits, or the place in line, that an id may have."""

    def __init__(self, operation: Operation, settings: Settings, id: str, lasts: float) -> None:
        self.operation, self.settings, self.id = operation, settings, id
        self.is_clean = True  # certainly no permits and no place in line
        self._lasts = lasts  # seconds: after this time without a call it has ended by itself
        self.release: Release | None = None  # in the background
        operation.claims.append(self)

    @property
    def is_repeated(self) -> bool:
        """Whether its release has begun in the background, or one of the calls had no answer."""
        return self.release is not None or self.operation.is_unsure

    def give_up(self) -> Release | None:
        """Releases it in the background. May be called repeatedly."""
        if self.is_clean:
            return None
        if self.release is None:
            self.release = Release(self.settings, self.id, clock.now() + self._lasts, self.operation.is_unsure)
            self.operation.session.agenda.release(self.release, self.operation.job)
        return self.release


class Request(Claim):
    """A request for permits of one semaphore, as a part of an operation."""

    def __init__(self, operation: Operation, settings: Settings, permits: int, id: str | None = None) -> None:
        permits = check_number("permits", permits, 1)
        if permits * settings.unit > MOST:
            check_number("permits", permits * settings.unit, 1)
        label = settings.label or operation.session.label
        random = os.urandom(32)
        new = str(uuid.UUID(bytes=random[:16], version=4))
        id = id or (f"{label}/{new}" if label else new)
        lasts = math.inf if settings.lease is PERMANENT else max(PATIENCE, settings.lease_ms / 1000)
        super().__init__(operation, settings, id, lasts)
        self.permits, self.mailbox, self.secret = permits * settings.unit, operation.mailbox, random[16:].hex()
        self.ticket, self.asked = 0, 0.0
        self.reply: Any = None
        operation.usage = unknown(settings.key)
        self._inbox: Inbox | None = None

    def ask(self, patience: float = 0, inbox: str = "") -> Steps[Held | None]:
        """One call of the script `acquire`. None: not granted, or the lease had ended when the reply was read."""
        settings, more = self.settings, {}
        if settings.max_waiting or settings.at_least_ms or settings.head_start_ms:
            more = {"max_waiting": settings.max_waiting, "at_least_ms": settings.at_least_ms}
        if settings.head_start_ms:
            more["head_start_ms"] = settings.head_start_ms
        self.is_clean, self.asked = False, clock.now()
        self.reply = reply = yield from self.operation.call(
            "acquire", settings.keys, id=self.id, permits=self.permits, limit=settings.limit,
            lease_ms=settings.first_lease_ms, wait_ms=round(patience * 1000), inbox=inbox, ticket=self.ticket, **more,
        )  # fmt: skip
        if reply.word == "denied":
            self.is_clean = not self.operation.is_unsure
        if reply.word == "above_limit":
            raise AboveLimit(settings.key, self.permits, reply.limit)
        if settings.strict and reply.limit != settings.limit:
            raise LimitMismatch(settings.key, settings.limit, reply.limit)
        self.operation.usage = self._usage()
        if reply.word == "denied" and patience:
            self.operation.session.counts.denied.add()
            self.operation.session.counts.line_full.add()
            raise LineFull(*self.operation.usage)
        if reply.word == "queued":
            self.ticket = reply.ticket
        if not self.is_granted:
            return None
        return self._held(reply.fence, reply.expires_at, deadline(self.asked, reply.expires_at, reply.now))

    @property
    def is_granted(self) -> bool:
        """Whether the last reply granted the permits."""
        return self.reply.word in ("granted", "held")

    def _usage(self) -> Usage:
        reply, waiting, next_expiry = self.reply, 0, None
        if reply.word == "queued":
            waiting = reply.position
        elif reply.word == "denied":
            waiting, next_expiry = reply.waiting, None if reply.next_expiry == -1 else reply.next_expiry / 1000
        return self.settings.key, reply.in_use, reply.limit, waiting, next_expiry

    def _held(self, fence: int, expires_at: int, end: float) -> Held | None:
        held = Held(self.settings, self.id, self.ticket, self.permits, self.reply.limit, fence, expires_at, end)
        held.is_unsure = self.operation.is_unsure
        return held if held.remaining else None  # None: this process was paused for longer than the lease

    def wait(self) -> Steps[Held | None]:
        """Waits in line, and asks again from time to time. None: the timeout ended."""
        operation = self.operation
        try:
            if (inbox := self._listen()) and not inbox.is_tried:
                left = min(OPENING, (operation.end - clock.now()) / 2)  # it can ask without a subscription too
                yield from operation.pause(left, inbox.has_tried)
                operation.early.clear()
            while clock.now() < operation.end:
                inbox = self._listen()
                argument = inbox.argument(self.secret) if inbox else ""
                if held := (yield from self.ask(PATIENCE, argument)):
                    return held
                if self.is_granted:
                    yield from operation.pause_lost()
                    continue
                operation.outage = OUTAGE
                sleep = min(self.reply.retry_after / 1000, RECHECK if argument else RECHECK_UNHEARD)
                if held := (yield from self._receive(min(operation.end, self.asked + sleep))):
                    return held
            return None
        finally:
            if self._inbox:
                self._inbox.requests.pop(self.id, None)

    def _listen(self) -> Inbox | None:
        """The inbox of the node that the semaphore is on now, which passes messages to this request. None: not known yet."""
        inbox: Inbox | None = self.operation.session.inbox(self.settings.key)
        if self._inbox and self._inbox is not inbox:
            self._inbox.requests.pop(self.id, None)
        self._inbox = inbox
        if inbox:
            inbox.requests[self.id] = self
            self.operation.session.listen(inbox)
        return inbox

    def _receive(self, until: float) -> Steps[Held | None]:
        """Sleeps until it is time to ask again. Returns a permit if a message grants it before that."""
        while (left := until - clock.now()) > 0:
            event = yield from self.operation.next(left)
            if event is ASK_AGAIN:
                return None
            if event is None or event.now < self.reply.now:
                continue  # older than the last reply
            if event.fence == 0 and event.at == -1:
                raise Revoked(f"{self.settings.key}: the wait of {self.id} was revoked")
            if event.fence == 0:
                until = min(until, event.received + (event.at - event.now) / 1000)
            elif self._is_new(event.fence) and event.permits == self.permits:
                # The message may have been delayed: its arrival alone would give a deadline that is too late.
                by_call = deadline(self.asked, event.at, self.reply.now)
                return self._held(event.fence, event.at, min(by_call, deadline(event.received, event.at, event.now)))
        return None

    def _is_new(self, fence: int) -> bool:
        """Whether the server gave this fence after the place in line.

        The ticket is the next fence of that time, lower by the head start (both in µs).
        """
        return fence > self.ticket + 1000 * self.settings.head_start_ms
