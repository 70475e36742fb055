"""limits.py URL PREFIX: reads one command per line, runs it, and prints one line with its result.

acquire MS WANT, try WANT, several MS WANT..., try_several WANT...: acquire permits. refresh, release, look: apply to the permits
granted last. await_lost MS: waits for the notice that they are lost. A WANT is
NAME/LIMIT/PERMITS/LEASE_MS/MAX_WAITING/AT_LEAST_MS, and /HEAD_START_MS if it has one. A LEASE_MS that ends with + is renewed;
- means no explicit lease.
"""

import sys
import threading

import redis
from luagate import Denied, LineFull, Lost, Luagate, Permits, TimedOut

url, prefix = sys.argv[1:]
gate = Luagate(redis.Redis.from_url(url), prefix)
held, lost = None, threading.Event()


def want(text):
    name, limit, permits, lease, max_waiting, at_least, *head_start = text.split("/")
    more = {"auto_renew": lease.endswith("+"), "max_waiting": int(max_waiting), "at_least": int(at_least) / 1000}
    if head_start:
        more["head_start"] = int(head_start[0]) / 1000
    lease = None if lease == "-" else int(lease.removesuffix("+")) / 1000
    notify = lost
    return gate.semaphore(name, int(limit), lease, on_lost=lambda _: notify.set(), **more), int(permits)


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
    global held, lost
    if verb == "await_lost":
        return "lost" if lost.wait(int(words[0]) / 1000) else "held"
    if verb == "refresh":
        held.refresh()
        return "refreshed"
    if verb == "release":
        return f"released {held.release()}".lower()
    if verb == "look":
        return f"{'lost' if held.is_lost else 'held'} {int(held.remaining * 1000)}"
    lost = threading.Event()
    held = ask(verb, words)
    fences = held.fences if isinstance(held, Permits) else [held.fence]
    return " ".join(map(str, ["held", *fences]))


for line in sys.stdin:
    try:
        verb, *words = line.split()
        result = answer(verb, words)
    except Denied:
        result = "none"
    except LineFull as full:
        result = f"full {full.waiting}"
    except TimedOut as error:  # a cause: the server has not answered
        result = f"refused {error}" if error.__cause__ else "timed_out"
    except Lost:
        result = "lost"
    except Exception as error:
        result = f"refused {error}"
    print(result, flush=True)
