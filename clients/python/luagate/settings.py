"""The settings of a semaphore, and the checks of all arguments. An invalid argument raises Invalid."""

import enum
import hashlib
import math
import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

from luagate.errors import MOST, Invalid

DEFAULT_LEASE = 30  # seconds
LONGEST = 3155760000  # seconds: a hundred years, the longest lease
LONGEST_HEAD_START = 86400  # seconds; the scripts accept no more
LONGEST_WORD, LONGEST_LABEL = 200, 163  # bytes
GROUPED = re.compile(r"\{([^{}]+)\}:([^{}]+)")  # a name with a group, which is its hash tag
GROUP = re.compile(r"(\{([^{}]+)\}:)(.*)", re.DOTALL)  # a text that begins with a group
LONGEST_GROUP = 100  # bytes, in a name that `name_from` makes
PARENTHESES = str.maketrans("{}", "()")
NAME_FROM = ". `luagate.name_from` makes a valid name of any text"
SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 100  # characters of a value in an error


class Permanent(enum.Enum):
    """The type of `PERMANENT`."""

    PERMANENT = "permanent"

    def __repr__(self) -> str:
        return "PERMANENT"


PERMANENT: Final = Permanent.PERMANENT  # a lease that never ends: the permit is held until it is released
Lease = float | Literal[Permanent.PERMANENT] | None


@dataclass(frozen=True)
class Settings:
    """The settings that a caller declares for a semaphore. All durations are in seconds."""

    prefix: str
    kind: str  # "semaphore", "mutex" or "rwlock"
    name: str
    limit: int
    unit: int  # the permits that one permit of the caller stands for: all of them for a writer, else 1
    lease: Lease  # None: 30 s, renewed in the background
    auto_renew: bool
    max_waiting: int
    at_least: float
    head_start: float
    on_lost: Callable[[Any], object] | None
    label: str | None
    strict: bool
    keys: list[str] = field(init=False)  # meta, holders, queue
    lease_ms: int = field(init=False)  # 0: permanent
    first_lease_ms: int = field(init=False)  # a permanent lease begins as an ordinary one: the reply may be lost
    at_least_ms: int = field(init=False)
    head_start_ms: int = field(init=False)

    def __post_init__(self) -> None:
        name, label = check_name(self.name), check_label(self.label)
        limit, max_waiting = check_number("limit", self.limit, 1), check_number("max_waiting", self.max_waiting, 0)
        for what, flag in (("auto_renew", self.auto_renew), ("strict", self.strict)):
            if not isinstance(flag, bool):
                refuse(what, flag, "True or False")
        if self.on_lost is not None and not callable(self.on_lost):
            refuse("on_lost", self.on_lost, "a function of one argument, or None")
        tag = name if name.startswith("{") else f"{{{name}}}"
        keys = [f"{self.prefix}:{self.kind}{part}:{tag}" for part in ("", ".holders", ".queue")]
        lease_ms = 0
        if self.lease is not PERMANENT:
            lease_ms = milliseconds("lease", DEFAULT_LEASE if self.lease is None else self.lease)
        elif self.auto_renew:
            refuse("auto_renew", True, "False for a PERMANENT lease, which needs no renewal")
        at_least_ms = milliseconds("at_least", self.at_least, zero="none")
        head_start_ms = milliseconds("head_start", self.head_start, LONGEST_HEAD_START, zero="none")
        for what, value in (
            ("name", name), ("label", label), ("limit", limit), ("max_waiting", max_waiting),
            ("keys", keys), ("lease_ms", lease_ms), ("first_lease_ms", lease_ms or DEFAULT_LEASE * 1000),
            ("at_least_ms", at_least_ms), ("head_start_ms", head_start_ms),
        ):  # fmt: skip
            object.__setattr__(self, what, value)

    @property
    def key(self) -> str:
        """The first key. It stands for the semaphore in errors."""
        return self.keys[0]

    @property
    def tag(self) -> str:
        """The hash tag of the keys."""
        return self.key.partition("{")[2].partition("}")[0]

    @property
    def is_renewed(self) -> bool:
        return self.auto_renew or self.lease is None

    @property
    def is_kept(self) -> bool:
        """Whether a held permit needs the background: to be renewed, or to report its loss."""
        return self.is_renewed or self.on_lost is not None


def refuse(what: str, got: object, accepted: str) -> NoReturn:
    raise Invalid(f"{what}: got {SHORT.repr(got)}. Accepted: {accepted}") from None


def milliseconds(what: str, seconds: object, longest: float = LONGEST, zero: str = "") -> int:
    """A duration. `zero`: what 0 means, if it is accepted."""
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if is_number and (0.001 <= seconds <= longest or zero and seconds == 0):  # type: ignore[operator]
        return round(seconds * 1000)  # type: ignore[operator]
    refuse(what, seconds, f"a number from 0.001 to {longest}, in seconds{zero and f'; 0: {zero}'}")


def check_timeout(timeout: object) -> float:
    """The timeout in seconds. None: unlimited."""
    return math.inf if timeout is None else milliseconds("timeout", timeout, zero="does not wait; None: waits for ever") / 1000


def check_number(what: str, number: object, least: int) -> int:
    """The number. Of an enumeration: the value of the member, as in all checks here."""
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= MOST:
        refuse(what, number, f"a whole number from {least} to {MOST}")
    return int.__int__(number)


def check_name(name: object) -> str:
    text = check_word("name", name, LONGEST_WORD, NAME_FROM)
    if not has_valid_braces(text):
        refuse("name", text, f"braces only around a group, as in {{group}}:name{NAME_FROM}")
    return text


def name_from(text: str) -> str:
    """Makes a valid name of any text: a URL, a path, a text of any length. The same text has the same name in all languages.

    A valid name is returned unchanged. In another text, braces become parentheses, and white space and control characters become `_`.
    The result is cut to 200 bytes, of which the last are `~` and the SHA-1 of the text. A group, as in `{group}:anything`, stays if it
    is valid and has at most 100 bytes. Raises `Invalid` for a text that UTF-8 cannot encode.
    """
    if not isinstance(text, str) or (text and not encoded(text)):
        refuse("text", text, "a text that UTF-8 can encode")
    if is_word(text, LONGEST_WORD) and has_valid_braces(text):
        return str.__str__(text)
    match = GROUP.fullmatch(text)
    name, rest = match.group(1, 3) if match and is_word(match[2], LONGEST_GROUP) else ("", text)
    end = f"~{hashlib.sha1(text.encode()).hexdigest()}"
    left = LONGEST_WORD - len(end) - len(name.encode())
    for character in SPACE.sub("_", rest).translate(PARENTHESES):
        left -= len(character.encode())
        if left < 0:
            break
        name += character
    return name + end


def check_prefix(prefix: object) -> str:
    if not isinstance(prefix, str) or not PREFIX.fullmatch(prefix):
        refuse("prefix", prefix, "1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'")
    return str.__str__(prefix)


def check_id(id: object) -> str:
    return check_word("id", id, LONGEST_WORD)


def check_label(label: object) -> str | None:
    return None if label is None else check_word("label", label, LONGEST_LABEL, ", or None")


def check_word(what: str, word: object, longest: int, other: str = "") -> str:
    """`longest`: in bytes. `other`: what else is accepted, or another way."""
    if not isinstance(word, str) or not is_word(word, longest):
        refuse(what, word, f"a text of 1 to {longest} bytes without white space and control characters{other}")
    return str.__str__(word)  # an f-string would show the member of an enumeration, not its value


def is_word(text: str, longest: int) -> bool:
    return 1 <= len(encoded(text)) <= longest and not SPACE.search(text)


def has_valid_braces(name: str) -> bool:
    return not re.search(r"[{}]", name) or bool(GROUPED.fullmatch(name))


def encoded(text: str) -> bytes:
    """Empty, and so refused: a text with a half of a character, which cannot be sent."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return b""
