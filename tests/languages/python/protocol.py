"""The common part of the drivers for threads and for asyncio: commands, wants, replies and errors. See ../faults/README.md."""

import copy
import inspect
import json
import math
import os
import pickle
import traceback
from urllib.parse import quote, unquote, urlsplit

import redis
from luagate import (
    PERMANENT,
    AboveLimit,
    Closed,
    Denied,
    Invalid,
    LimitMismatch,
    LineFull,
    Lost,
    NoPermission,
    Revoked,
    Ticket,
    TimedOut,
    Unreachable,
    name_from,
)

KINDS = {
    TimedOut: "timed_out",
    Denied: "denied",
    LineFull: "full",
    AboveLimit: "above_limit",
    LimitMismatch: "limit_mismatch",
    Lost: "lost",
    Revoked: "revoked",
    Closed: "closed",
    Invalid: "invalid",
    NoPermission: "permission",
    Unreachable: "unreachable",
    redis.RedisError: "server",
}
SAFE = "".join(map(chr, range(33, 127))).replace("%", "").replace("=", "")


class WorkFailed(Exception):
    """The error of the work in a block."""


class Command:
    """A line of the input."""

    def __init__(self, line):
        self.call, self.verb, *pairs = line.split()
        self.pairs = [(key, unquote(value)) for key, _, value in (pair.partition("=") for pair in pairs)]
        self.values = dict(self.pairs)

    def get(self, key, default=None):
        return self.values.get(key, default)

    def seconds(self, key):
        return int(self.values[key]) / 1000 if key in self.values else None

    @property
    def wants(self):
        """The wants: a dictionary for each."""
        wants = []
        for key, value in self.pairs:
            if key == "name":
                wants.append({})
            if wants:
                wants[-1][key] = value
        return wants


def client_of(command, single, cluster, sentinels):
    """The client of the server at the URL of `open`; or of its cluster; or of a master, if it is a sentinel."""
    url = command.get("url")
    settings = {} if command.get("client") == "default" else {"socket_timeout": 2}
    if command.get("cluster") == "1":
        return cluster.from_url(url, **settings)
    if master := command.get("sentinel"):
        place = urlsplit(url)
        return sentinels([(place.hostname, place.port)], **settings).master_for(master, **settings)
    return single.from_url(url, **settings)


def semaphore_of(gate, want, on_lost=None):
    """The semaphore of a want, and its number of permits."""
    settings = {"on_lost": on_lost} if on_lost else {}
    if lease := want.get("lease"):
        settings["lease"] = PERMANENT if lease == "permanent" else int(lease.removesuffix("+")) / 1000
        settings["auto_renew"] = lease.endswith("+")
    for key in ("at_least", "head_start"):
        if key in want:
            settings[key] = int(want[key]) / 1000
    if "max_waiting" in want:
        settings["max_waiting"] = int(want["max_waiting"])
    if "label" in want:
        settings["label"] = want["label"]
    if want.get("strict") == "1":
        settings["strict"] = True
    kind, name, permits = want.get("kind", "semaphore"), want["name"], int(want.get("permits", 1))
    if kind == "semaphore":
        return gate.semaphore(name, int(want.get("limit", 1)), **settings), permits
    if kind == "mutex":
        return gate.mutex(name, **settings), permits
    return getattr(gate.rwlock(name, **settings), kind), permits


def write(*words, **values):
    """Writes a line. Uses no lock, so that it works in a child and in a signal handler too."""
    pairs = [f"{key}={quote(str(value), safe=SAFE)}" for key, value in values.items()]
    os.write(1, (" ".join([*words, *pairs]) + "\n").encode())


def granted(permit):
    """The values of a permit, or of permits of several semaphores."""
    one, *_ = permits = permit.permits if isinstance(permit.permits, list) else [permit]
    fences, counts, limits = (",".join(str(getattr(p, key)) for p in permits) for key in ("fence", "permits", "limit"))
    return "granted", {"id": one.id, "fence": fences, "permits": counts, "limit": limits}


def state(permit):
    if permit.is_lost:
        return "lost", {}
    return "held", {"remaining": "never" if permit.remaining == math.inf else int(permit.remaining * 1000)}


def inspected(state):
    holders, waiters = (",".join(one.id for one in ones) for ones in (state.holders, state.waiters))
    return "state", {
        "limit": state.limit or 0, "in_use": state.in_use, "waiting": state.waiter_count,
        "holders": holders, "waiters": waiters, "labels": ",".join(one.label or "" for one in state.holders),
    }  # fmt: skip


def resized(change):
    return "resized", {"old": change.old or 0, "new": change.new}


def failure(error):
    """The reply for an error."""
    kind = next((kind for one, kind in KINDS.items() if isinstance(error, one)), "other")
    values = {"kind": kind, "type": type(error).__name__}
    if kind in ("denied", "full", "timed_out"):
        values.update(in_use=error.in_use, limit=error.limit, waiting=error.waiting)
        values["next_expiry"] = -1 if error.next_expiry is None else round(error.next_expiry * 1000)
    if kind in ("above_limit", "limit_mismatch"):
        values["limit"] = error.limit
    if kind == "permission":
        values["logged"] = f"{error!r} {''.join(traceback.format_exception(error))}"
    return "error", {**values, "message": error}


# --- Invalid arguments ---


def _function(): ...


def _generator():
    yield


async def _async_function(): ...


async def _async_generator():
    yield


WORK = [_generator, _async_function, _async_generator]  # which `hold` of threads refuses
ASYNC_WORK = [_function, _generator, _async_generator]  # and that of asyncio

NUMBERS = [-1, 0.5, math.inf, math.nan, True, None, "1", 2**31]
DURATIONS = [-1, -0.001, 0.0004, math.inf, -math.inf, math.nan, True, "1", 1e12, [1]]


def without(values, *accepted):
    return [value for value in values if not any(value is one for one in accepted)]


def invalid_calls(make, gate):
    """Calls with invalid arguments, as a text, a function, and a part of the error. `make(prefix, **settings)`: opens a gate."""
    cases = []

    def add(what, values, call, accepted=""):
        """`accepted`: what the error says at least."""
        cases.extend((f"{what}={value!r:.20}", lambda value=value: call(value), accepted) for value in values)

    semaphore = gate.semaphore("arguments", 1)
    add("limit", [0, *NUMBERS, 1.0], lambda value: gate.semaphore("a", value))
    add("permits", [0, *NUMBERS, 1.0], semaphore.acquire)
    add("permits(try)", [0, *NUMBERS], semaphore.try_acquire)
    add("resize", [0, *NUMBERS], semaphore.resize)
    add("lease", [0, *DURATIONS], lambda value: gate.semaphore("a", 1, value))
    add("lease(mutex)", [0, *DURATIONS], lambda value: gate.mutex("a", value))
    add("timeout", DURATIONS, lambda value: semaphore.acquire(timeout=value), "0: does not wait; None: waits for ever")
    add("timeout(several)", DURATIONS, lambda value: gate.several([(semaphore, 1)]).acquire(timeout=value))
    add("max_waiting", NUMBERS, lambda value: gate.semaphore("a", 1, max_waiting=value))
    add("at_least", [None, *DURATIONS], lambda value: gate.semaphore("a", 1, at_least=value), "; 0: none")
    add("head_start", [None, 86401, *DURATIONS], lambda value: gate.semaphore("a", 1, head_start=value))
    add("auto_renew", [None, 1, "yes"], lambda value: gate.semaphore("a", 1, 1, auto_renew=value))
    add("hold", ASYNC_WORK if inspect.iscoroutinefunction(gate.close) else WORK, lambda value: semaphore.hold()(value))
    add("pickle", [gate, semaphore], pickle.dumps, "in each process")
    add("deepcopy", [gate, semaphore], copy.deepcopy, "in each process")
    fake = type("FakeRedis", (type(gate.client),), {"__module__": "fakeredis"})
    add("client", [fake()], type(gate), "for tests too")
    add("strict", [None, 1, "yes"], lambda value: gate.semaphore("a", 1, strict=value))
    add("on_lost", [1, "f"], lambda value: gate.semaphore("a", 1, on_lost=value))
    add("name", ["\ud800", "a\udfff"], lambda value: gate.mutex(value), "a text of 1 to 200 bytes")
    add("name", ["", " ", "a b", "a\n", "{a", "a}", "{}:a", b"a", True], lambda value: gate.mutex(value))
    add("name", ["x" * 201, "x" * 10_000, None, 1], lambda value: gate.mutex(value), "a text of 1 to 200 bytes")
    add("label", ["", "a b", "x" * 164, 1, True], lambda value: gate.mutex("a", label=value), "characters, or None")
    add("id", ["", "a b", "x" * 201, None, 1], semaphore.revoke, "a text of 1 to 200 bytes")
    add("ticket", ["", "0", "017", "-1", "seven", "1" * 17, 17, None, b"17"], Ticket)
    add("several", [None, [], [1], [(semaphore, 0)], [(semaphore, True)], [(None, 1)], [(semaphore, 1)] * 2], gate.several)
    add("prefix", ["", "a b", "x" * 65, "{a}", None, 1], make)
    add("call_timeout", [None, 0, *DURATIONS], lambda value: make("p", call_timeout=value))
    add("label(gate)", ["", "a b", "x" * 164, 1], lambda value: make("p", label=value))
    add("scripts", ["/nowhere", 1], lambda value: make("p", scripts=value))
    return cases


def checked(cases, wrong):
    """The reply after all cases. `name_from` must give the same names as other languages."""
    with open("lua/names.json") as file:
        others = [row for row in json.load(file) if name_from(row["text"]) != row["name"]]
    wrong = wrong + [f"name of {row['text']!r:.20}" for row in others]
    return "checked", {"total": len(cases), "wrong": ",".join(wrong)}


def is_helpful(error, accepted):
    """Whether the text of an error is short, and says what is accepted."""
    _, said, text = str(error).partition(" Accepted: ")
    return bool(said) and accepted in text and len(str(error)) < 400
