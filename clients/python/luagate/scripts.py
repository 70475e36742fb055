"""The scripts of this package, their arguments and their replies."""

import json
from collections.abc import Generator, Sequence
from hashlib import sha1
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import redis
from luagate.errors import Invalid
from luagate.settings import refuse

CONTRACT = 1  # the version of lua/README.md that this package implements
FOLDER = Path(__file__).parent / "lua"

Commands = Generator[tuple[Any, ...], Any, Any]  # yields commands, receives their replies or errors, and returns a result


class Script:
    """A script: its text, and the names of its arguments and replies."""

    def __init__(self, name: str, text: bytes, described: dict[str, Any]) -> None:
        self.text, self.sha = text, described["sha1"]
        if sha1(text).hexdigest() != self.sha:
            why = f"the SHA-1 of {described['file']} differs from the manifest. Copy the folder lua/ again, byte for byte"
            raise Invalid(f"scripts: {name}: {why}")
        self._names: list[str] = described["argv"]
        self._needed = set(self._names[: len(self._names) - described.get("optional", 0)])
        self._replies: dict[str, list[str]] = described["replies"]

    def argv(self, **arguments: Any) -> list[Any]:
        """The arguments of a call, in the order of the manifest. The last ones may be left out."""
        return [arguments[name] for name in self._names if name in arguments or name in self._needed]

    def commands(self, keys: Sequence[Any], argv: Sequence[Any], loads: bool = True) -> Commands:
        """The commands of a call: EVALSHA. If the server does not have the script, it is loaded.

        Without `loads` it is sent with the call: the client of a cluster would load it on all nodes.
        """
        call = ("EVALSHA", self.sha, len(keys), *keys, *argv)
        for _ in range(2 if loads else 1):
            try:
                return (yield call)
            except redis.exceptions.NoScriptError:
                if loads:
                    yield "SCRIPT LOAD", self.text
        return (yield "EVAL", self.text, len(keys), *keys, *argv)  # another client has run SCRIPT FLUSH

    def reply(self, values: Any) -> SimpleNamespace:
        """A reply: its `word`, and its fields by name."""
        word = text(values[0]) if "" not in self._replies else ""
        fields = values if word == "" else values[1:]
        return SimpleNamespace(word=word, **dict(zip(self._replies[word], fields)))


class Scripts(dict[str, Script]):
    """The scripts in a folder, by their names in its manifest."""

    def __init__(self, folder: str | Path = FOLDER) -> None:
        try:
            self.manifest = json.loads(Path(folder, "manifest.json").read_text("utf-8"))
        except (OSError, TypeError, ValueError) as error:
            refuse("scripts", folder, f"a folder with manifest.json. {error}")
        if self.manifest["contract"] != CONTRACT:
            accepted = f"contract {CONTRACT}. Use the folder lua/ that belongs to this package"
            raise Invalid(f"scripts: {folder}: got contract {self.manifest['contract']}. Accepted: {accepted}")
        for name, described in self.manifest["scripts"].items():
            self[name] = Script(name, Path(folder, described["file"]).read_bytes(), described)


def text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
