"""The messages from the server, and the requests that they belong to."""

import hashlib
import hmac
import re
import time
from dataclasses import dataclass

PATIENCE = 15  # after a call, the server keeps a waiter's place for this time
PATIENCE_UNHEARD = 60  # the same if messages do not reach the client
MESSAGE = re.compile(r"(\S+) ([0-9]+) ([0-9]+) (-1|[0-9]+) ([0-9]+) ([0-9a-f]{40})")
ASK_AGAIN = object()  # an event: messages may have been lost, so the waiter asks again


@dataclass
class Message:
    """A message grants permits. With the fence 0 it is a hint: ask again at `at`; -1: the wait was revoked."""

    received: float
    permits: int
    fence: int
    at: int
    now: int


class Inbox:
    """The channel of a client. `is_heard`: whether messages reach the client."""

    def __init__(self, channel):
        self.channel, self.is_heard = channel, True
        self.requests = {}  # by id

    @property
    def patience(self):
        return PATIENCE if self.is_heard else PATIENCE_UNHEARD

    def address(self, secret):
        """The inbox of a request, as an argument of the scripts. The server signs the messages with the secret."""
        return f"{self.channel}#{secret}" if self.is_heard else ""

    def subscribed_again(self):
        """Messages may have been lost."""
        for request in list(self.requests.values()):
            request.events.put_nowait(ASK_AGAIN)

    def deliver(self, text):
        """Passes a message to its request. Returns a request that was given up, and has received a grant too late."""
        found = MESSAGE.fullmatch(text)
        request = found and self.requests.get(found[1])
        if not request:
            return None
        signed = request.secret + text[: found.start(6) - 1]
        if not hmac.compare_digest(hashlib.sha1(signed.encode()).hexdigest(), found[6]):
            return None
        request.events.put_nowait(Message(time.monotonic(), *map(int, found.group(2, 3, 4, 5))))
        return self.requests.pop(request.id, None) if request.is_abandoned else None
