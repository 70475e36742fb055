"""The calls to the server, and the messages from the server."""

import hashlib
import hmac
import json
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import redis

CONTRACT = 1  # the version of lua/README.md that this file implements
PAUSES = (0.05, 0.2, 1, 2)  # before each retry of a call whose reply was lost
RECHECK = 5  # a waiter asks again after this time at the latest
PATIENCE = 15  # after a call, the server keeps a waiter's place for this time
PATIENCE_UNHEARD = 60  # the same if messages do not reach the client
MESSAGE = re.compile(r"(\S+) ([0-9]+) ([0-9]+) (-1|[0-9]+) ([0-9]+) ([0-9a-f]{40})")


class Scripts:
    """The scripts of the folder `lua/`, by their names in the manifest."""

    def __init__(self, client, folder):
        manifest = json.loads(Path(folder, "manifest.json").read_text("utf-8"))
        if manifest["contract"] != CONTRACT:
            accepted = f"contract {CONTRACT}. Use the folder lua/ that belongs to this client"
            raise ValueError(f"{folder}: got contract {manifest['contract']}. Accepted: {accepted}")
        self.manifest = manifest["scripts"]
        # redis-py calls a registered script with EVALSHA, and loads it if the server does not have it.
        self.run = {}
        for name, script in self.manifest.items():
            self.run[name] = client.register_script(Path(folder, script["file"]).read_bytes())
            if self.run[name].sha != script["sha1"]:
                why = f"the SHA-1 of {script['file']} differs from the manifest. Copy the folder lua/ again, byte for byte"
                raise ValueError(f"{name}: {why}")

    def call(self, name, keys, **arguments):
        """Calls a script with arguments by name, and returns the reply."""
        script = self.manifest[name]
        names = script["argv"]
        needed = len(names) - script.get("optional", 0)  # the last ones may be left out
        argv = [arguments[name] for name in names if name in arguments or name in names[:needed]]
        return self.call_with(name, keys, argv)

    def call_with(self, name, keys, argv):
        """Calls a script, and returns the reply: its `word`, and its fields by name.

        Retries if the reply is lost: a call with the same id has the same outcome.
        """
        for pause in (*PAUSES, None):
            try:
                word, *fields = self.run[name](keys, argv)
                names = self.manifest[name]["replies"][_text(word)]
                return SimpleNamespace(word=_text(word), **dict(zip(names, fields)))
            except (redis.ConnectionError, redis.TimeoutError):
                if pause is None:
                    raise
                time.sleep(pause)


class Inbox:
    """The channel on which a client receives messages for its requests."""

    def __init__(self, client, channel):
        self.channel, self.patience = channel, PATIENCE
        self.requests, self.is_closed = {}, False
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(channel)
        while self._pubsub.get_message(timeout=RECHECK) is None:
            pass
        client.publish(channel, "")  # raises if an ACL forbids it; the scripts would only send no messages
        [(_, listeners)] = client.pubsub_numsub(channel)
        if listeners == 0:  # a proxy keeps messages away
            self.channel, self.patience = "", PATIENCE_UNHEARD
        threading.Thread(target=self._listen, name="luagate-inbox", daemon=True).start()

    def _listen(self):
        while not self.is_closed:
            try:
                message = self._pubsub.get_message(timeout=1)
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(PAUSES[0])  # the next get_message connects and subscribes again
                continue
            if message is None:
                continue
            if message["type"] == "subscribe":  # subscribed again: messages may have been lost, so all ask again
                for request in list(self.requests.values()):
                    request.events.put(None)
            else:
                self._deliver(_text(message["data"]), time.monotonic())
        self._pubsub.close()

    def _deliver(self, text, received):
        """Passes a message to its request if its signature is valid: only the server knows the request's secret."""
        found = MESSAGE.fullmatch(text)
        request = found and self.requests.get(found[1])
        if not request:
            return
        signed = request.secret + text[: found.start(6) - 1]
        if not hmac.compare_digest(hashlib.sha1(signed.encode()).hexdigest(), found[6]):
            return
        request.events.put((received, *map(int, found.group(2, 3, 4, 5))))
        if request.is_abandoned:
            self.requests.pop(request.id, None)
            request.abandon()


def _text(value):
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
