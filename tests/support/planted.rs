//! The scripts with a fault planted in their text, and a separate client that runs them, since the library
//! embeds the correct scripts. Its calls are recorded like the library's.

use super::history::{Full, Granted, Lease, Op, Outcome, Recorder};
use super::includes::whole;
use luagate::scripts::Keys;
use redis::{Connection, Script, Value};
use std::time::{Duration, Instant};

/// A fault: pieces of script text and their replacements. It strikes at one of many occasions, and writes the
/// id that it struck into the key `<meta>.struck`.
pub struct Fault {
    pub name: &'static str,
    patches: &'static [Patch],
}

struct Patch {
    /// In `lua/`.
    file: &'static str,
    old: &'static str,
    new: &'static str,
}

/// Counts, and strikes at the number in `<meta>.strike`. Then it stores the id.
const STRIKES: Patch = Patch {
    file: "arguments.lua",
    old: "local find = string.find\n",
    new: "local find = string.find
local function strikes(who)
  local at = tonumber(redis.call('GET', KEYS[1] .. '.strike'))
  if redis.call('INCR', KEYS[1] .. '.count') < at or redis.call('EXISTS', KEYS[1] .. '.struck') == 1 then return false end
  redis.call('SET', KEYS[1] .. '.struck', who)
  return true
end
",
};

pub const NONE: Fault = Fault { name: "none", patches: &[] };

/// The minimum hold time of each holder while `ONE_TOO_MANY` can strike, in µs.
pub const STAY_US: u64 = 1_000;

/// Counts the grants and, after a given number, grants one that should be refused. During a release no one
/// can say if it came in time. So the fault strikes when all holders were granted less than the hold time
/// ago.
pub const ONE_TOO_MANY: Fault = Fault {
    name: "one too many",
    patches: &[
        STRIKES,
        // Every call passes the place of its refusal.
        Patch {
            file: "semaphore/place.lua",
            old: "local serves = in_use < limit or ",
            new: "local serves = true or ",
        },
        Patch {
            file: "semaphore/serve.lua",
            old: "  local fits = alive and in_use + permits <= limit\n",
            new: "  local fits = alive and in_use + permits <= limit
  if mine and fits then
    redis.call('INCR', KEYS[1] .. '.count')
  elseif mine then
    local oldest = math.huge
    for _, holder in ipairs(redis.call('ZRANGE', holders, 0, -1)) do
      oldest = math.min(oldest, (struct.unpack(PLAIN_HOLDER, redis.call('HGET', meta, holder))))
    end
    if oldest > micros - 900 then
      redis.call('DECR', KEYS[1] .. '.count')
      fits = strikes(id)
    end
  end\n",
        },
    ],
};

/// The second waiter in line is granted before the first.
pub const SWAPPED: Fault = Fault {
    name: "swapped",
    patches: &[
        STRIKES,
        Patch {
            file: "semaphore/serve.lua",
            old: "    if waiting > 0 then texts = call('HMGET', meta, unpack(line)) end\n",
            new: "    if asks and seen == 0 and line[2] == id and in_use + want <= limit and strikes(id) then
      line[1], line[2] = id, line[1]
    end
    if waiting > 0 then texts = call('HMGET', meta, unpack(line)) end\n",
        },
    ],
};

/// The fence of the previous grant.
pub const FENCE_TWICE: Fault = Fault {
    name: "fence twice",
    patches: &[
        STRIKES,
        Patch {
            file: "semaphore/serve.lua",
            old: "    last_fence = next_fence\n",
            new: "    if not mine or not strikes(id) then last_fence = next_fence end\n",
        },
    ],
};

/// A lease that ends at once, although the reply contains its full length.
pub const CUT_SHORT: Fault = Fault {
    name: "cut short",
    patches: &[
        STRIKES,
        Patch {
            file: "semaphore/serve.lua",
            old: "    ends = lease == 0 and NEVER or now + lease\n",
            new: "    ends = strikes(who) and now or lease == 0 and NEVER or now + lease\n",
        },
    ],
};

/// A release that frees nothing.
pub const NOT_FREED: Fault = Fault {
    name: "not freed",
    patches: &[
        STRIKES,
        Patch {
            file: "semaphore/release.lua",
            old: "elseif fence then\n",
            new: "elseif fence and strikes(id) then
  word, fence = 'released', nil
elseif fence then\n",
        },
    ],
};

/// A release that also frees another holder's permit.
pub const FREED_TWICE: Fault = Fault {
    name: "freed twice",
    patches: &[
        STRIKES,
        Patch {
            file: "semaphore/release.lua",
            old: "  fence, wrote, lease_ended = nil, true, true\n",
            new: "  fence, wrote, lease_ended = nil, true, true
  local other = redis.call('ZRANGE', holders, 0, 0)[1]
  if other and other ~= id and strikes(other) then
    redis.call('ZREM', holders, other)
    redis.call('HDEL', meta, other)
  end\n",
        },
    ],
};

/// A caller with a head start is granted before a waiter that came earlier than that.
pub const OVERTAKES_ALL: Fault = Fault {
    name: "overtakes all",
    patches: &[
        STRIKES,
        Patch {
            file: "semaphore/place.lua",
            old: "  ticket = math.max(1, next_fence - head_start_ms * 1000)\n",
            new: "  ticket = math.max(1, next_fence - head_start_ms * 1000)
  local came_earlier = redis.call('ZCOUNT', queue, '-inf', string.format('%.0f', ticket - 200))
  if came_earlier > 0 and in_use + want <= limit and strikes(id) then ticket = 0 end\n",
        },
    ],
};

/// A waiter with a head start is the last in line.
pub const IGNORED: Fault = Fault {
    name: "ignored",
    patches: &[
        STRIKES,
        Patch {
            file: "semaphore/stay.lua",
            old: "  call('ZADD', queue, ticket, id)\n  is_new_queue = waiting == 0\n",
            new: "  call('ZADD', queue, behind > 0 and strikes(id) and last_fence or ticket, id)
  is_new_queue = waiting == 0\n",
        },
    ],
};

const ALL: [&Fault; 9] = [
    &NONE,
    &ONE_TOO_MANY,
    &SWAPPED,
    &FENCE_TWICE,
    &CUT_SHORT,
    &NOT_FREED,
    &FREED_TWICE,
    &OVERTAKES_ALL,
    &IGNORED,
];

impl Fault {
    pub fn named(name: &str) -> &'static Fault {
        ALL.into_iter().find(|fault| fault.name == name).unwrap()
    }

    /// A file of `lua/` with the fault.
    fn source(&self, file: &str) -> String {
        let mut text = std::fs::read_to_string(super::root().join("lua").join(file)).unwrap();
        for Patch { old, new, .. } in self.patches.iter().filter(|patch| patch.file == file) {
            let found = text.matches(old).count();
            assert_eq!(found, 1, "{}: lua/{file} has changed: {old}", self.name);
            text = text.replace(old, new);
        }
        text
    }

    /// A script of the manifest with the fault.
    fn script(&self, name: &str) -> Script {
        let files = self.patches.iter().map(|patch| patch.file);
        files.for_each(|file| drop(self.source(file))); // also fails for a file that no script includes now
        let text = whole(&self.source(&format!("{name}.lua")), |part| self.source(part));
        Script::new(&text.unwrap())
    }
}

/// The client of one thread.
pub struct Client<'a> {
    recorder: &'a Recorder,
    con: Connection,
    keys: Keys,
    name: String,
    limit: u32,
    lease_ms: u64,
    acquire: Script,
    release: Script,
    refresh: Script,
}

/// A reply: a word and numbers.
type Reply = (String, Vec<i64>);

impl Client<'_> {
    pub fn new<'a>(
        recorder: &'a Recorder,
        url: &str,
        prefix: &str,
        limit: u32,
        lease_ms: u64,
        fault: &Fault,
    ) -> Client<'a> {
        let name = "planted".to_owned();
        Client {
            recorder,
            con: redis::Client::open(url).unwrap().get_connection().unwrap(),
            keys: Keys::semaphore(prefix, &name).unwrap(),
            name,
            limit,
            lease_ms,
            acquire: fault.script("semaphore/acquire"),
            release: fault.script("semaphore/release"),
            refresh: fault.script("semaphore/refresh"),
        }
    }

    fn run(con: &mut Connection, script: &Script, keys: &Keys, arguments: &[&str]) -> Reply {
        let mut call = script.prepare_invoke();
        for key in keys.list() {
            call.key(key);
        }
        for argument in arguments {
            call.arg(argument);
        }
        let reply: Vec<Value> = call.invoke(con).unwrap();
        let mut reply = reply.into_iter();
        let word = redis::from_redis_value(reply.next().unwrap()).unwrap();
        let numbers = reply.map(|value| redis::from_redis_value(value).unwrap());
        (word, numbers.collect())
    }

    /// Calls once; `wait_ms` 0: not in line.
    fn ask(&mut self, id: &str, wait_ms: u64, head_start_ms: u64) -> Reply {
        let (limit, lease, wait) = (self.limit.to_string(), self.lease_ms.to_string(), wait_ms.to_string());
        let head_start = head_start_ms.to_string();
        let arguments = [id, "1", &limit, &lease, &wait, "", "0", "0", "0", &head_start];
        Self::run(&mut self.con, &self.acquire, &self.keys, &arguments)
    }

    /// Requests one permit, in line for up to `patience`, and asks again all the time. Returns true if
    /// granted.
    pub fn acquire(&mut self, id: &str, patience: Option<Duration>, head_start_ms: u64) -> bool {
        let lease = Lease::Ms(self.lease_ms);
        let op = Op::Acquire { permits: Some(1), lease, waits: patience.is_some(), head_start_ms };
        let started = self.recorder.start(&self.name, &op);
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut ticket = None;
        let outcome = loop {
            let over = deadline.is_none_or(|deadline| deadline <= Instant::now());
            let (word, numbers) = self.ask(id, if over { 0 } else { 60_000 }, head_start_ms);
            let refused = |at: usize| Full {
                in_use: numbers[at] as u32,
                limit: numbers[at + 1] as u32,
                waiting: numbers[at + 2] as u64,
                answered: true,
            };
            match word.as_str() {
                "queued" => {
                    ticket.get_or_insert(numbers[0] as u64);
                    std::thread::sleep(Duration::from_micros(200));
                }
                "denied" if patience.is_some() => break Outcome::TimedOut(refused(1)),
                "denied" => break Outcome::Denied(refused(1)),
                _ => {
                    break Outcome::Granted(Granted {
                        id: id.to_owned(),
                        permits: numbers[0] as u32,
                        fence: numbers[1] as u64,
                        ticket,
                        expires_at: Some(numbers[2] as u64),
                    });
                }
            }
        };
        started.end(&outcome);
        matches!(outcome, Outcome::Granted(_))
    }

    /// The fault's counter, and whether it has struck.
    pub fn progress(&mut self) -> (u32, bool) {
        let mut get = redis::cmd("MGET");
        for key in ["count", "struck"] {
            get.arg(format!("{}.{key}", self.keys.list()[0]));
        }
        let (count, struck): (Option<u32>, Option<String>) = get.query(&mut self.con).unwrap();
        (count.unwrap_or(0), struck.is_some())
    }

    pub fn refresh(&mut self, id: &str) {
        let op = Op::Refresh { id: id.to_owned(), lease: Lease::Ms(self.lease_ms) };
        let started = self.recorder.start(&self.name, &op);
        let lease = self.lease_ms.to_string();
        let (word, numbers) = Self::run(&mut self.con, &self.refresh, &self.keys, &[id, &lease]);
        started.end(&match word.as_str() {
            "refreshed" => Outcome::Refreshed(Some(numbers[2] as u64)),
            _ => Outcome::Lost,
        });
    }

    pub fn release(&mut self, id: &str) {
        let op = Op::Release { id: id.to_owned(), keep: 0 };
        let started = self.recorder.start(&self.name, &op);
        let (word, _) = Self::run(&mut self.con, &self.release, &self.keys, &[id, "0"]);
        started.end(&match word.as_str() {
            "released" => Outcome::Released,
            _ => Outcome::Gone,
        });
    }
}
