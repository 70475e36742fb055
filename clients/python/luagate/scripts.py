"""The scripts of this package, their arguments and their replies."""

import json
from collections.abc import Generator, Sequence
from contextlib import suppress
from hashlib import sha1
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import redis
from luagate.errors import Invalid, UnexpectedReply
from luagate.settings import refuse

CONTRACT = 1  # the version of lua/README.md that this package implements
OWN = files("luagate") / "lua"  # in a folder or in a zip file

# The fields that are lists, and the length of each row. All other fields are numbers.
ROWS = {
    "semaphore/inspect": {"holders": 5, "waiters": 4},
    "semaphore/try_acquire_several": {"permits": 5, "usages": 3},
}
HIGHEST = 2**53  # of the numbers of Lua: times, tickets and fences are lower

Commands = Generator[tuple[Any, ...], Any, Any]  # yields commands, receives their replies or errors, and returns a result


class Script:
    """A script: its text, and the names of its arguments and replies."""

    def __init__(self, name: str, text: bytes, described: dict[str, Any]) -> None:
        self.name, self.text, self.sha = name, text, described["sha1"]
        if sha1(text).hexdigest() != self.sha:
            why = f"the SHA-1 of {described['file']} differs from the manifest. Copy the folder lua/ again, byte for byte"
            raise Invalid(f"scripts: {name}: {why}")
        self._names: list[str] = described["argv"]
        self._needed = set(self._names[: len(self._names) - described.get("optional", 0)])
        self._replies: dict[str, list[str]] = described["replies"]

    def argv(self, **arguments: Any) -> list[Any]:
        """The arguments of a call, in the order of the manifest. The last ones may be left out."""
        return [arguments[name] for name in self._names if name in arguments or name in self._needed]

    def commands(self, keys: Sequence[Any], argv: Sequence[Any]) -> Commands:
        """The commands of a call: EVALSHA. If the server does not have the script, EVAL, after which the server has it."""
        with suppress(redis.exceptions.NoScriptError):
            return (yield "EVALSHA", self.sha, len(keys), *keys, *argv)
        return (yield "EVAL", self.text, len(keys), *keys, *argv)

    def reply(self, values: Any) -> SimpleNamespace:
        """A reply: its `word`, and its fields by name. Raises UnexpectedReply."""
        if not isinstance(values, list):
            raise self.unexpected(values)
        word, fields = "", values
        if "" not in self._replies:
            word, fields = text(values[0]) if values and isinstance(values[0], (str, bytes)) else "", values[1:]
        names, rows = self._replies.get(word), ROWS.get(self.name, {})
        if names is None or len(fields) < len(names):
            raise self.unexpected(values)
        for name, field in zip(names, fields):
            is_valid = _is_list(field, rows[name], "inspect" in self.name) if name in rows else _is_number(field)
            if not is_valid:
                raise self.unexpected(values)
        return SimpleNamespace(word=word, **dict(zip(names, fields)))

    def unexpected(self, reply: object) -> UnexpectedReply:
        what = "unexpected reply; the script never returns this. Check for a proxy that changes replies"
        return UnexpectedReply(f"{self.name}: {what}: {repr(reply)[:200]}")


class Scripts(dict[str, Script]):
    """The scripts in a folder, by their names in its manifest; without a folder, those of this package."""

    def __init__(self, folder: str | Path | None = None) -> None:
        try:
            source = OWN if folder is None else Path(folder)
            self.manifest = json.loads((source / "manifest.json").read_text("utf-8"))
        except (OSError, TypeError, ValueError) as error:
            refuse("scripts", folder, f"a folder with manifest.json. {error}")
        if self.manifest["contract"] != CONTRACT:
            accepted = f"contract {CONTRACT}. Use the folder lua/ that belongs to this package"
            raise Invalid(f"scripts: {folder}: got contract {self.manifest['contract']}. Accepted: {accepted}")
        for name, described in self.manifest["scripts"].items():
            self[name] = Script(name, (source / described["file"]).read_bytes(), described)


def _is_number(value: object) -> bool:
    return type(value) is int and -1 <= value <= HIGHEST


def _is_list(value: object, length: int, has_ids: bool) -> bool:
    """Whether it is a list of rows of numbers. With ids, each row begins with one."""

    def is_row(row: object) -> bool:
        if not isinstance(row, list) or len(row) < length:
            return False
        numbers = row[1:length] if has_ids else row[:length]
        return all(map(_is_number, numbers)) and (not has_ids or isinstance(row[0], (str, bytes)))

    return isinstance(value, list) and all(map(is_row, value))


def text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
