"""limits.py URL PREFIX: reads one command per line, runs it, and prints one line with its result.

acquire MS WANT, try WANT, several MS WANT..., try_several WANT...: acquire permits. refresh, release, look: apply to the permits
granted last. A WANT is NAME/LIMIT/PERMITS/LEASE_MS/MAX_WAITING/AT_LEAST_MS.
"""

import sys
from pathlib import Path

import redis
from luagate import LineFull, Lost, Luagate, Permits, TimedOut

url, prefix = sys.argv[1:]
gate = Luagate(redis.Redis.from_url(url, socket_timeout=2), Path(__file__).parents[3] / "lua", prefix)
held = None


def want(text):
    name, limit, permits, lease, max_waiting, at_least = text.rsplit("/", 5)
    lease, at_least = int(lease) / 1000, int(at_least) / 1000
    return gate.semaphore(name, int(limit), lease, int(max_waiting), at_least), int(permits)


def ask(verb, words):
    timeout = int(words.pop(0)) / 1000 if verb in ("acquire", "several") else None
    wants = [want(word) for word in words]
    if verb == "acquire":
        return wants[0][0].acquire(wants[0][1], timeout)
    if verb == "try":
        return wants[0][0].try_acquire(wants[0][1])
    several = gate.several(wants)
    return several.acquire(timeout) if verb == "several" else several.try_acquire()


def answer(verb, words):
    global held
    if verb == "refresh":
        held.refresh()
        return "refreshed"
    if verb == "release":
        return f"released {held.release()}".lower()
    if verb == "look":
        return f"{'lost' if held.is_lost else 'held'} {int(held.remaining * 1000)}"
    held = ask(verb, words)
    if held is None:
        return "none"
    fences = held.fences if isinstance(held, Permits) else [held.fence]
    return " ".join(map(str, ["held", *fences]))


for line in sys.stdin:
    try:
        verb, *words = line.split()
        result = answer(verb, words)
    except LineFull as full:
        result = f"full {full.waiting}"
    except TimedOut:
        result = "timed_out"
    except Lost:
        result = "lost"
    except Exception as error:
        result = f"refused {error}"
    print(result, flush=True)
