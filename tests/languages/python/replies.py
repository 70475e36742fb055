"""replies.py: calls luagate with random replies of the server. Each call returns a value or raises a LuagateError."""

import json
import os
import queue
import sys
import types

import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from luagate import LuagateError, UnexpectedReply, clock, several_steps, steps
from luagate.agenda import Agenda
from luagate.counters import Counts
from luagate.held import Held
from luagate.operation import Job, Operation
from luagate.scripts import OWN, Scripts
from luagate.session import Session
from luagate.settings import Settings
from luagate.state import Resized, State

SCRIPTS = Scripts()
WORDS = sorted({word for script in json.loads((OWN / "manifest.json").read_text("utf-8"))["scripts"].values() for word in script["replies"]})
NOW = 1_795_205_203_248

numbers = st.one_of(
    st.integers(-1, 3),
    st.sampled_from([NOW, NOW + 1, NOW + 30_000, NOW * 1000, 2**31 - 1, 2**31, 2**53, 2**63 - 1, -(2**63)]),
)
others = st.one_of(st.none(), st.booleans(), st.floats(), st.binary(max_size=3), st.text(max_size=3), st.builds(redis.ResponseError))
rows = st.lists(st.lists(st.one_of(numbers, numbers, st.just(b"a/b"), others), max_size=6), max_size=4)
fields = st.one_of(numbers, numbers, numbers, rows, others)
forged = st.one_of(
    fields,
    st.lists(fields, max_size=10),
    st.builds(lambda word, rest: [word.encode(), *rest], st.sampled_from(WORDS), st.lists(numbers, max_size=7)),
    st.builds(lambda word, rest: [word, *rest], st.sampled_from(WORDS), st.lists(fields, max_size=7)),
    st.builds(lambda counts, *lists: [*counts, *lists], st.lists(numbers, min_size=7, max_size=7), rows, rows),
    st.builds(lambda now, grants: [b"granted", now, grants], numbers, st.lists(st.lists(numbers, min_size=5, max_size=5), max_size=3)),
)


class Forger(Session):
    """Each call has the next of these replies, then always the last one."""

    mailbox = queue.SimpleQueue

    def __init__(self, replies):
        gate = types.SimpleNamespace(client=None, prefix="p", scripts=SCRIPTS, call_timeout=0.02, label=None, counts=Counts())
        super().__init__(gate)
        self.replies = replies

    def run_job(self, job: Job, until):
        job.read(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])
        job.end()

    def listen(self, inbox):
        inbox.is_tried = True


def settings_of(name, **changes):
    values = dict(
        lease=None, auto_renew=False, max_waiting=0, at_least=0, head_start=0, on_lost=None, label=None, strict=False,
    )  # fmt: skip
    return Settings("p", "semaphore", name, 5, 1, **{**values, **changes})


ONE, OTHER = settings_of("{g}:one"), settings_of("{g}:other", strict=True)


def held():
    return Held(ONE, "id", 0, 2, 5, 1, NOW, clock.now() + 60)


CALLS = {
    "try_acquire": lambda operation: steps.try_acquire(operation, ONE, 1),
    "acquire": lambda operation: steps.acquire(operation, OTHER, 1),
    "refresh": lambda operation: steps.refresh(operation, held()),
    "release": lambda operation: steps.release(operation, [held()]),
    "downgrade": lambda operation: steps.downgrade(operation, held()),
    "revoke": lambda operation: steps.revoke(operation, ONE, "id"),
    "resize": lambda operation: steps.resize(operation, ONE, 7),
    "inspect": lambda operation: steps.inspect(operation, ONE),
    "try_acquire_several": lambda operation: several_steps.try_acquire_several(operation, [(ONE, 1), (OTHER, 1)]),
    "acquire_several": lambda operation: several_steps.acquire_several(operation, [(ONE, 1), (OTHER, 1)]),
}


def run(session, name):
    operation = Operation(session, name, 0.02 if name.startswith("acquire") else None)
    parts, event = operation.steps(CALLS[name](operation)), None
    for _ in range(100):
        try:
            seconds = parts.send(event)
            event = operation.mailbox.get(timeout=max(0, seconds))
        except queue.Empty:
            event = None
        except StopIteration as end:
            return end.value
        except LuagateError as error:
            return error
    raise AssertionError(f"{name} does not end")


several = settings(
    max_examples=int(os.environ.get("LUAGATE_CASES", "500")),
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@several
@given(st.sampled_from(sorted(CALLS)), st.lists(forged, min_size=1, max_size=3))
@example("try_acquire_several", [[b"denied", 0, 1, NOW, [[1, 1, 1], [1, 1, 1]], 0]])
@example("try_acquire_several", [[b"granted", NOW, [[1, 1, NOW + 9, 1, 1]]]])
@example("try_acquire_several", [[b"denied", 3, 1, NOW, [[1, 1, 1], [1, 1, 1]], 0]])
@example("resize", [[b"unchanged", 1, 1]])
@example("inspect", [[5, 0, 0, 2**53, 0, 0, NOW, [], []]])
@example("try_acquire", [[b"granted", 1, 1, NOW, NOW, 1, 1]])
def calls_end_with_a_value_or_an_error(name, replies):
    result = run(Forger(replies), name)
    if isinstance(result, LuagateError):
        str(result)
    elif name == "inspect":
        State.of(result)
    elif name == "resize":
        Resized(result.old, result.new, result.in_use)
    elif name.endswith("several"):
        assert len(result) == 2


@several
@given(st.lists(forged, min_size=1, max_size=3))
def the_background_goes_on(replies):
    session = Forger(replies)
    agenda: Agenda = session.agenda
    loop, one = agenda.loop(), held()
    next(loop)
    agenda.add(one)
    agenda._plan(one, 0)  # now
    for _ in range(4):
        loop.send(None if agenda.mailbox.empty() else agenda.mailbox.get())


@given(st.sampled_from(sorted(SCRIPTS)), forged)
@several
def replies_are_read_or_refused(name, reply):
    try:
        SCRIPTS[name].reply(reply)
    except UnexpectedReply:
        pass


if __name__ == "__main__":
    import logging

    logging.disable()
    for check in (replies_are_read_or_refused, calls_end_with_a_value_or_an_error, the_background_goes_on):
        check()
        sys.stdout.write(f"{check.__name__}: passed\n")
