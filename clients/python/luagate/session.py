"""The parts of a Luagate in one process, or in one event loop: connections, a subscription, and work in the background."""

import secrets
import string
from typing import Any

import redis
from luagate import clients, failures
from luagate.agenda import CLOSE, WAKE, Agenda
from luagate.errors import Closed
from luagate.inbox import Inbox
from luagate.operation import Job, Operation

LETTERS = string.ascii_letters + string.digits


class Session:
    """The part that threads and asyncio share. A subclass runs the operations."""

    def __init__(self, gate: Any) -> None:
        self.client, self.prefix, self.scripts = gate.client, gate.prefix, gate.scripts
        self.call_timeout, self.label = gate.call_timeout, gate.label
        self.attempt = min(2, self.call_timeout / 2)  # seconds: the timeout of one attempt
        self.is_cluster = clients.is_cluster(self.client)
        self.counts = gate.counts
        self.operations: dict[Operation, None] = {}  # those that run now
        self.posted: dict[Any, None] = {}  # the releases of blocks that have not ended
        self.has_release = False  # the server has run the script of a posted release
        # Another one after each posted release that failed: a later call may have run before it.
        self.last_delay = object()
        self.inboxes: dict[tuple[str, int] | None, Inbox] = {}  # by node
        self.has_answered = False  # the server, at least once
        self.is_closed = False
        self._own: Any = None  # the client of luagate's own
        self.agenda = Agenda(self)

    # --- A subclass has these ---

    def mailbox(self) -> Any:
        """A queue of events."""
        raise NotImplementedError

    def run_job(self, job: Job, until: float | None) -> None:
        """Runs a call to the server: in the background, or on the caller's thread until this time."""
        raise NotImplementedError

    def post(self, posted: Any) -> bool:
        """Sends the release of a block on an open connection. False: there is none, so the caller must release."""
        return False

    def listen(self, inbox: Inbox) -> None:
        """Subscribes, if the inbox is not subscribed."""
        raise NotImplementedError

    # --- Calls ---

    def start(self, script: Any, keys: list[str], argv: list[Any], mailbox: Any, until: float | None = None) -> Job:
        """Starts a call of a script. It is done already, or puts itself into the mailbox when it has ended.

        Without `until` it runs in the background.
        """
        job = Job(script, script.commands(keys, argv), keys, mailbox, until)
        job.last_delay = self.last_delay
        self.run_job(job, until)
        return job

    def own(self) -> Any:
        """The client of luagate's own. For a cluster and threads, this connects."""
        if self._own is None:
            self._own = clients.own(self.client, self.attempt)
        return self._own

    def failed(self, client: Any, error: Exception) -> None:
        """A call by this client has failed. The next attempt connects anew, perhaps to another server.

        The client of a cluster stays after an error of one node: it has dropped that connection, and other nodes may be healthy.
        """
        is_of_node = self.is_cluster and isinstance(error, (redis.ConnectionError, redis.TimeoutError))
        if self._own is client and not is_of_node:
            self._own = None
        if failures.is_read_only(error):
            for inbox in list(self.inboxes.values()):
                inbox.is_stale = True

    # --- Waiting ---

    def node(self, key: str) -> tuple[str, int] | None:
        """The node of the cluster that has the key. None: it is not known at this moment, or there is no cluster."""
        if not self.is_cluster:
            return None
        try:
            node = self._own.get_node_from_key(key)
            return node.host, node.port
        except Exception:
            return None

    def inbox(self, key: str) -> Inbox | None:
        """The inbox for a key. None: it is not known yet which node of the cluster has the key, so the waiter asks again."""
        address = self.node(key)
        if self.is_cluster and address is None:
            return None
        return self.inboxes.get(address) or self.inboxes.setdefault(address, self._new_inbox(address))

    def _new_inbox(self, address: tuple[str, int] | None) -> Inbox:
        name = "".join(secrets.choice(LETTERS) for _ in range(9))
        return Inbox(f"{self.prefix}:inbox:{name}", self.prefix, address, self.counts.reconnects.add)

    def connect(self, inbox: Inbox) -> Any:
        """The client for a subscription."""
        return clients.of_node(self.own(), *inbox.address) if inbox.address else self.own()

    # --- The life of operations ---

    def begin(self, operation: Operation) -> None:
        self.operations[operation] = None
        if self.is_closed:
            raise Closed(f"{operation.name}: this Luagate is closed")

    def ended(self, operation: Operation) -> None:
        self.operations.pop(operation, None)
        if self.is_closed:
            self.agenda.mailbox.put_nowait(WAKE)

    def end_all(self) -> None:
        """Ends all operations. The agenda finishes their releases."""
        self.is_closed = True
        for operation in list(self.operations):
            operation.mailbox.put_nowait(Closed(f"{operation.name}: this Luagate was closed during the call"))
        self.agenda.mailbox.put_nowait(CLOSE)
