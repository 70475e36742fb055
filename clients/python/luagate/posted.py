"""The release at the end of a block is posted: it is sent, and nobody waits for its reply.

The connection keeps it until the reply was read: by the next call on this connection, or soon in the background. If there is no
reply, or the server refuses it, the release is repeated: in the background as any other, or by the next call of its name, which
sends it ahead of itself.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import redis
from luagate import clock
from luagate.agenda import WAKE
from luagate.errors import UnexpectedReply
from luagate.operation import Job

READ_AFTER = 0.02  # seconds after which a reply is read in the background, if no call has read it
SLICE = 0.005  # seconds between two looks at a posted release that another call reads or repeats
# It says nothing about other connections.
LATE = redis.TimeoutError("an earlier release of this name was not answered in time")
LOG = logging.getLogger("luagate")


class Line:
    """An open connection of luagate's own, and the releases that were sent on it and whose replies were not read."""

    def __init__(self, connection: Any, idle: "deque[Line]") -> None:
        self.connection = connection
        self.idle = idle  # where it is while no call uses it
        self.used = clock.now()
        self.posted: deque[Posted] = deque()
        self.is_failed = False

    def take(self) -> bool:
        """Takes it from the idle ones, if it is one of them."""
        try:
            self.idle.remove(self)
        except ValueError:
            return False
        return True

    def fail(self, error: Exception) -> None:
        """The connection is not used any more: its releases are repeated."""
        self.is_failed = True  # first: who still reads from it must not take the reply of a release for the next one
        while self.posted:
            self.posted.popleft().failed(error)

    def read(self, reply: Any) -> None:
        """Takes the reply to the first release: what the server returned, or its error."""
        try:
            first = None if self.is_failed else self.posted.popleft()
        except IndexError:
            first = None
        if first is None:
            raise redis.ConnectionError("another thread has given up this connection")
        first.read(reply)


class Posted:
    """The release of one permit at the end of its block."""

    def __init__(self, session: Any, claim: Any, permit: Any) -> None:
        self.session, self.claim, self.permit, self.held = session, claim, permit, permit._held
        self.key = claim.settings.key
        self.since = clock.now()
        self.line: Line | None = None  # which it was sent on; None: it is not, or not any more, to be answered there
        self.is_done = False
        self.was_held = self.held.remaining > 0
        self._then: list[Callable[[], object]] = []

    def command(self) -> tuple[Any, ...]:
        """What is sent. As long as the server has not run the script, with its text."""
        script, settings = self.session.scripts["semaphore/release"], self.claim.settings
        how = ("EVALSHA", script.sha) if self.session.has_release else ("EVAL", script.text)
        return (*how, len(settings.keys), *settings.keys, *script.argv(id=self.claim.id, keep=0))

    def sent(self, line: Line) -> None:
        """It is about to be sent: from now on, a later call of this name runs after it."""
        self.line = line
        line.posted.append(self)
        self.session.posted[self] = None

    def read(self, reply: Any) -> None:
        """Takes the reply of the server, or its error. Raises redis.ConnectionError if the script never returns this reply."""
        if isinstance(reply, redis.ResponseError):
            return self.failed(reply)
        try:
            answer = self.session.scripts["semaphore/release"].reply(reply)
        except UnexpectedReply as error:
            self.failed(error)
            raise redis.ConnectionError(str(error)) from error
        self.line, self.session.has_release = None, True
        self.answered(answer)
        self.end()

    def answered(self, reply: Any) -> None:
        """Reports the loss of the permit, if the release has found nothing. One that was repeated may have found nothing itself."""
        if reply.word != "released" and self.was_held and not self.claim.is_repeated:
            self.session.agenda.lost_at_end(self.held, self.permit)
        if self.held.is_unsure:
            self.session.agenda.release_again(self.held)

    def failed(self, error: Exception) -> None:
        """It has no answer, or the server has refused it: it is repeated."""
        self.line, self.session.has_release, self.session.last_delay = None, False, object()
        self.session.posted[self] = None
        if release := self.claim.release:  # a call has repeated it
            self.session.agenda.failed(release, error)
            if release.is_done:
                self.end()
            return
        LOG.warning("%s: %s was not released at the end of its block; the release is repeated: %s", self.key, self.claim.id, error)
        self.claim.operation.is_unsure = True
        release = self.claim.give_up()
        release.mailbox = self
        if release.is_done:
            self.end()

    @property
    def is_due(self) -> bool:
        """Whether the next call of its name sends it."""
        return self.line is None and self.session.agenda.is_due(self.claim.release)

    def take(self) -> bool:
        """From now on, nobody else sends it."""
        return self.line is None and self.session.agenda.take(self.claim.release)

    def put_nowait(self, _: object) -> None:
        """The repeated release has ended."""
        self.end()

    def end(self) -> None:
        self.is_done = True
        self.session.posted.pop(self, None)
        while self._then:
            self._then.pop()()
        if self.session.is_closed:
            self.session.agenda.mailbox.put_nowait(WAKE)

    def then(self, call: Callable[[], object]) -> None:
        """Calls this as soon as the release has ended."""
        self._then.append(call)
        if self.is_done:
            call()


def before(job: Job, session: Any) -> list[Posted]:
    """The releases that the server must run before this call."""
    posted = session.posted
    return [one for one in list(posted) if one.key in job.keys] if posted and job.is_ordered else []
