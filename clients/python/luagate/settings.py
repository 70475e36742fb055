"""The settings of a semaphore. An invalid setting raises Invalid."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from luagate.errors import Invalid

DEFAULT_LEASE = 30  # seconds
LONGEST_HEAD_START = 86400  # seconds; the scripts accept no more
GROUPED = re.compile(r"\{([^{}]+)\}:([^{}]+)")  # a name with a group, which is its hash tag
SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")


@dataclass(frozen=True)
class Settings:
    """What a caller declares about a semaphore. All durations are in seconds."""

    prefix: str
    kind: str  # "semaphore" or "mutex"
    name: str
    limit: int
    lease: float | None  # None: 30 s, renewed in the background
    auto_renew: bool
    max_waiting: int
    at_least: float
    head_start: float
    on_lost: Callable[[Any], object] | None
    keys: list[str] = field(init=False)  # meta, holders, queue

    def __post_init__(self):
        check_name(self.name)
        check_prefix(self.prefix)
        for what, value in [("lease", self.lease), ("at_least", self.at_least)]:
            if value is not None and not isinstance(value, (int, float)):
                raise Invalid(f"{what}: got {value!r}. Accepted: seconds, as a number")
        if not isinstance(self.head_start, (int, float)) or not 0 <= self.head_start <= LONGEST_HEAD_START:
            raise Invalid(f"head_start: got {self.head_start!r}. Accepted: 0 to {LONGEST_HEAD_START}, in seconds")
        tag = self.name if self.name.startswith("{") else f"{{{self.name}}}"
        keys = [f"{self.prefix}:{self.kind}{part}:{tag}" for part in ("", ".holders", ".queue")]
        object.__setattr__(self, "keys", keys)

    @property
    def key(self):
        """The first key. It stands for the semaphore in errors."""
        return self.keys[0]

    @property
    def tag(self):
        """The hash tag of the keys."""
        return self.key.partition("{")[2].partition("}")[0]

    @property
    def lease_ms(self):
        return round((DEFAULT_LEASE if self.lease is None else self.lease) * 1000)

    @property
    def at_least_ms(self):
        return round(self.at_least * 1000)

    @property
    def head_start_ms(self):
        return round(self.head_start * 1000)

    @property
    def is_kept(self):
        """Whether a held permit needs the background: to be renewed, or to report its loss."""
        return self.is_renewed or self.on_lost is not None

    @property
    def is_renewed(self):
        return self.auto_renew or self.lease is None


def check_name(name):
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 200 or SPACE.search(name):
        raise Invalid(f"name: got {name!r}. Accepted: 1 to 200 bytes without white space and control characters")
    if re.search(r"[{}]", name) and not GROUPED.fullmatch(name):
        raise Invalid(f"name: got {name!r}. Accepted: braces only around a group, as in {{group}}:name")


def check_prefix(prefix):
    if not isinstance(prefix, str) or not PREFIX.fullmatch(prefix):
        raise Invalid(f"prefix: got {prefix!r}. Accepted: 1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'")
