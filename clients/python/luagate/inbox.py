"""The messages from the server: the subscription, and the requests that the messages belong to."""

import hashlib
import hmac
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import redis
from luagate import clock, failures
from luagate.scripts import text

OPENING = 2  # seconds: the subscription must be confirmed within this time
QUIET = 2  # seconds without a message: then the subscription is checked, and must answer within the same time
UNHEARD = 10  # seconds until the next attempt, if messages do not reach this client
PAUSES = (0.05, 0.2, 0.5, 1)  # seconds before each new attempt to subscribe
MESSAGE = re.compile(r"(\S+) ([0-9]+) ([0-9]+) (-1|[0-9]+) ([0-9]+) ([0-9a-f]{40})")
ASK_AGAIN = object()  # an event: messages may have been lost, or the subscription has changed, so the waiter asks again


@dataclass
class Message:
    """A message grants permits. With the fence 0 it is a hint: ask again at `at`; -1: the wait was revoked."""

    received: float
    permits: int
    fence: int
    at: int
    now: int


class Inbox:
    """The channel of a client. `address`: the node of a cluster that it belongs to."""

    def __init__(
        self, channel: str, prefix: str, address: tuple[str, int] | None = None, reopened: Callable[[], object] = lambda: None
    ) -> None:
        self._reopened = reopened  # is called when a subscription that has ended was replaced
        self._was_open = False
        self.channel, self.prefix, self.address = channel, prefix, address
        self.requests: dict[str, Any] = {}  # by id
        self.is_open = False  # subscribed, and messages reach this client
        self.is_tried = False  # at least one attempt to subscribe has ended
        self.is_stale = False  # the server has changed: the subscription is opened anew
        self.subscription: Any = None

    def argument(self, secret: str) -> str:
        """The inbox of a request, as an argument of the scripts. The server signs the messages with the secret."""
        return f"{self.channel}#{secret}" if self.is_open else ""

    def has_tried(self) -> bool:
        return self.is_tried

    def tell(self, event: Any) -> None:
        """Passes an event to all requests."""
        for request in list(self.requests.values()):
            request.mailbox.put_nowait(event)

    def listen(self, connect: Callable[[], Any]) -> Generator[tuple[Any, ...], Any, None]:
        """Subscribes, and passes messages on, as long as there are requests or the subscription works.

        Yields an object, the name of its method and arguments, and receives the result or the error.
        """
        attempt = 0
        try:
            while attempt == 0 or self.requests:
                pause = PAUSES[min(attempt, len(PAUSES) - 1)]
                attempt += 1
                self.is_stale = False
                try:
                    client = connect()
                    self.subscription = client.pubsub()
                    yield from self._open(client)
                    attempt = 1
                    yield from self._read()
                    pause = UNHEARD
                except Exception as error:
                    if refused := failures.of_permission(error, self.prefix):
                        self.tell(refused)
                        return
                    if failures.is_unknown_command(error):
                        pause = UNHEARD
                self._changed(False)
                if self.subscription is not None:
                    yield self.subscription, "close"
                yield self, "pause", pause
        finally:
            self.is_open = self.is_tried = False

    def _open(self, client: Any) -> Generator[tuple[Any, ...], Any, None]:
        yield self.subscription, "subscribe", self.channel
        end = clock.now() + OPENING
        while (message := (yield self.subscription, "get_message", False, OPENING)) is None or message["type"] != "subscribe":
            if clock.now() > end:
                raise redis.TimeoutError("the subscription to grant messages was not confirmed in time")
        yield client, "publish", self.channel, ""  # fails if an ACL forbids it; the scripts would only send no messages
        [(_, listeners)] = yield client, "pubsub_numsub", self.channel
        if listeners == 0:  # an error here: the subscription was closed meanwhile, so a new one is opened soon
            yield self.subscription, "ping"
            message = yield self.subscription, "get_message", False, OPENING
            if message and message["type"] == "subscribe":  # redis-py has subscribed again
                raise redis.ConnectionError("the subscription to grant messages was closed")
        if self._was_open:
            self._reopened()
        self._was_open = True
        self._changed(listeners > 0)  # a proxy can keep messages away

    def _changed(self, is_open: bool) -> None:
        if self.is_open != is_open or not self.is_tried:
            self.is_open, self.is_tried = is_open, True
            self.tell(ASK_AGAIN)

    def _read(self) -> Generator[tuple[Any, ...], Any, None]:
        """Reads messages. A subscription can be dead although its connection is open, so a quiet one is checked by a PING."""
        is_checked = False
        while self.is_open:
            message = yield self.subscription, "get_message", False, QUIET
            if self.is_stale:
                raise redis.ConnectionError("the server has changed")
            if message is None:
                if is_checked:
                    raise redis.TimeoutError("the subscription to grant messages is dead")
                if self.requests:
                    yield self.subscription, "ping"
                    is_checked = True
                continue
            is_checked = False
            if message["type"] == "subscribe":  # redis-py has subscribed again: messages may have been lost
                self.tell(ASK_AGAIN)
            elif message["type"] == "message":
                self.deliver(text(message["data"]))

    def deliver(self, said: str) -> None:
        """Passes a message to its request, if its signature is right."""
        found = MESSAGE.fullmatch(said)
        request = found and self.requests.get(found[1])
        if not found or not request:
            return
        signed = request.secret + said[: found.start(6) - 1]
        if hmac.compare_digest(hashlib.sha1(signed.encode()).hexdigest(), found[6]):
            permits, fence, at, now = map(int, found.group(2, 3, 4, 5))
            request.mailbox.put_nowait(Message(clock.now(), permits, fence, at, now))
