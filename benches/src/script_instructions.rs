//! How many instructions a script costs the server, counted by callgrind: each case as a ratio to the bare
//! semaphore. The count has almost no noise. It includes reading the call and writing the reply, but no work
//! of the client.

use crate::figure::{Figure, Limit};
use crate::instructions::{ONE_FOR_ALL, can_count, total};
use crate::recorded::Bound;
use crate::rounds::median;
use crate::script_time::BARE_RELEASE;
use crate::server::Server;
use crate::version::version;
use crate::wire::{Script, manifest};
use redis::{Connection, Pipeline, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

/// The calls of a round, in one packet; half of it if each needs another call that is not counted.
const CALLS: usize = 400;
const ROUNDS: usize = 3;

/// A server under callgrind is about 50 times slower, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// In five runs on each server a ratio varied by at most 1.7 %, and by 1.8 % with the libraries of another
/// system.
pub const BOUND: Bound = Bound::Within(0.03);

/// The servers with limits, each with a factor that is applied to the limit of every case.
const LIMITED: [(&str, f64); 3] = [("Redis 7.0.15", 1.0), ("Redis 8.6.2", 1.1), ("Valkey 9.1.2", 1.1)];

/// Calls to an empty server: some prepare, the others are counted.
struct Work {
    before: fn(&Scripts, &mut Pipeline),
    counted: fn(&Scripts, &mut Pipeline),
    /// The first words of the replies, repeated in this order.
    words: &'static [&'static str],
}

struct Case {
    what: &'static str,
    /// The highest ratio that is accepted; see `LIMITED`.
    limit: f64,
    beside: Bare,
    work: Work,
}

/// A case of the bare semaphore: the denominator of a ratio.
enum Bare {
    /// A call of acquire + release: half of the pair.
    Pair,
    Denied,
}

const BARE_PAIR: Work = Work {
    before: nothing,
    counted: |scripts, packet| {
        for _ in 0..CALLS / 2 {
            let id = uuid::Uuid::new_v4().to_string();
            scripts.bare_acquire(packet, &id, "10000");
            packet.add_command(scripts.bare_release.call(&["z"], &[&id]));
        }
    },
    words: &[],
};

const BARE_DENIED: Work = Work {
    before: |scripts, packet| {
        (0..5).for_each(|n| scripts.bare_acquire(packet, &format!("h{n}"), "99999"));
    },
    counted: |scripts, packet| {
        (0..CALLS).for_each(|n| scripts.bare_acquire(packet, &format!("x{n}"), "99999"));
    },
    words: &[],
};

const CASES: [Case; 6] = [
    Case {
        what: "acquire + release",
        limit: 2.45,
        beside: Bare::Pair,
        work: Work {
            before: nothing,
            counted: |scripts, packet| pairs(scripts, packet, "1"),
            words: &["granted", "released"],
        },
    },
    Case {
        what: "acquire + release of 2 permits",
        limit: 2.6,
        beside: Bare::Pair,
        work: Work {
            before: nothing,
            counted: |scripts, packet| pairs(scripts, packet, "2"),
            words: &["granted", "released"],
        },
    },
    Case {
        what: "acquire, denied",
        limit: 2.0,
        beside: Bare::Denied,
        work: Work {
            before: |scripts, packet| {
                (0..5).for_each(|n| scripts.hold(packet, &format!("h{n}"), "5"));
            },
            counted: |scripts, packet| {
                (0..CALLS).for_each(|n| scripts.hold(packet, &format!("x{n}"), "5"));
            },
            words: &["denied"],
        },
    },
    Case {
        what: "refresh",
        limit: 2.05,
        beside: Bare::Pair,
        work: Work {
            before: |scripts, packet| scripts.hold(packet, "h", "5"),
            counted: |scripts, packet| {
                // Each lease ends later than the last one, also within the same ms. A call that changes
                // nothing takes another path, and a fast machine makes more of these.
                (0..CALLS).for_each(|n| {
                    let lease_ms = (90_000 + 20 * n).to_string();
                    scripts.call(packet, "refresh", &["h", &lease_ms, ANY]);
                });
            },
            words: &["refreshed"],
        },
    },
    Case {
        what: "acquire, joins the line",
        limit: 3.4,
        beside: Bare::Pair,
        work: Work {
            before: |scripts, packet| scripts.hold(packet, "h", "1"),
            counted: |scripts, packet| (0..CALLS).for_each(|n| scripts.join(packet, n)),
            words: &["queued"],
        },
    },
    Case {
        what: "release, hands over",
        // The goal was 4.2. Twelve Redis calls, each needed by a promise, and a signed message take 4.36 to
        // 4.43, which differs between two builds of the same version of the server.
        limit: 4.5,
        beside: Bare::Pair,
        work: Work {
            before: |scripts, packet| (0..=CALLS / 2).for_each(|n| scripts.join(packet, n)),
            counted: |scripts, packet| {
                (0..CALLS / 2).for_each(|n| scripts.call(packet, "release", &[&waiter(n), "0", ANY]));
            },
            words: &["released"],
        },
    },
];

/// The bare acquire of `script_time`, which also returns the server's time, as luagate does.
const BARE_ACQUIRE: &str = "local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
  return {1, now}
end
return {0, now}";

const KEYS: [&str; 3] =
    ["luagate:semaphore:{s}", "luagate:semaphore.holders:{s}", "luagate:semaphore.queue:{s}"];
const CHANNEL: &str = "inbox:123456789";
const INBOX: &str = "inbox:123456789#s3cretxxxxxxxxxxxxxxxx";

fn waiter(n: usize) -> String {
    format!("x{n:032}")
}

/// Matches any fence.
const ANY: &str = "0";

fn nothing(_: &Scripts, _: &mut Pipeline) {}

fn pairs(scripts: &Scripts, packet: &mut Pipeline, permits: &str) {
    for _ in 0..CALLS / 2 {
        let id = uuid::Uuid::new_v4().to_string();
        scripts.call(packet, "acquire", &[&id, permits, "5", "10000", "0", "", "0"]);
        scripts.call(packet, "release", &[&id, "0", ANY]);
    }
}

struct Scripts {
    ours: BTreeMap<String, Script>,
    bare_acquire: Script,
    bare_release: Script,
}

impl Scripts {
    /// Loads all scripts of a semaphore, as on servers in use. Each loaded script adds work for Lua's garbage
    /// collector, and so to every count.
    fn load(con: &mut Connection) -> Scripts {
        let manifest = manifest();
        let names = manifest.as_object().unwrap().keys();
        let ours = names.filter_map(|name| {
            let short = name.strip_prefix("semaphore/")?;
            Some((short.to_owned(), Script::of_manifest(con, name)))
        });
        Scripts {
            ours: ours.collect(),
            bare_acquire: Script::load(con, BARE_ACQUIRE),
            bare_release: Script::load(con, BARE_RELEASE),
        }
    }

    fn call(&self, packet: &mut Pipeline, name: &str, arguments: &[&str]) {
        packet.add_command(self.ours[name].call(&KEYS, arguments));
    }

    /// Asks for one permit, without waiting.
    fn hold(&self, packet: &mut Pipeline, id: &str, limit: &str) {
        self.call(packet, "acquire", &[id, "1", limit, "99999", "0", "", "0"]);
    }

    /// Asks for the only permit, and waits in line.
    fn join(&self, packet: &mut Pipeline, n: usize) {
        let arguments = [&*waiter(n), "1", "1", "99999", "60000", INBOX, "0"];
        self.call(packet, "acquire", &arguments);
    }

    fn bare_acquire(&self, packet: &mut Pipeline, id: &str, lease: &str) {
        packet.add_command(self.bare_acquire.call(&["z"], &[id, "5", lease]));
    }
}

/// A server under callgrind.
pub struct Counted {
    server: Server,
    folder: tempfile::TempDir,
    con: Connection,
    /// How many counts callgrind wrote.
    counts: usize,
}

impl Counted {
    /// Returns `None` if no server's binary exists. Needs valgrind.
    pub fn start() -> Option<Counted> {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        // Traces children, because the binary may be a shell script that runs the server.
        let valgrind = [
            "valgrind".to_owned(),
            "--tool=callgrind".to_owned(),
            "--trace-children=yes".to_owned(),
            format!("--callgrind-out-file={}", file("counts")),
            format!("--vgdb-prefix={}", file("vgdb")),
        ];
        let valgrind = valgrind.map(OsString::from).to_vec();
        let start = |arguments: &[&str]| {
            let environment = vec![("GLIBC_TUNABLES".into(), ONE_FOR_ALL.into())];
            let mut server = Server::start_under(valgrind.clone(), arguments, "0", |_| environment)?;
            let is_ready = server.becomes_ready_within(PATIENCE);
            Some((server, is_ready == Some(true)))
        };
        let (mut server, mut is_ready) = start(&["--enable-debug-command", "yes"])?;
        if !is_ready {
            (server, is_ready) = start(&[])?; // Redis 6.2 rejects the argument, and does not need it
        }
        assert!(is_ready, "no server runs under callgrind");
        let mut con = server.connection();
        con.set_read_timeout(Some(PATIENCE)).unwrap();
        // Periodic work of the server would be counted too, most of all in long rounds.
        let pause = redis::cmd("DEBUG").arg("PAUSE-CRON").arg(1).exec(&mut con);
        pause.unwrap();
        Some(Counted { server, folder, con, counts: 0 })
    }

    /// The name and version of the server, as `Redis 7.0.15`.
    pub fn version(&mut self) -> String {
        version(&mut self.con)
    }

    /// Sends a command to the server's callgrind.
    fn callgrind(&self, command: &str) {
        let output = Command::new("vgdb")
            .arg(format!("--vgdb-prefix={}", self.folder.path().join("vgdb").display()))
            .arg("--max-invoke-ms=10") // the server may be asleep
            .arg(command)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "vgdb {command}: {errors}");
    }

    /// The instructions of one call: the median of some rounds.
    fn count(&mut self, scripts: &Scripts, work: &Work) -> f64 {
        median((0..ROUNDS).map(|_| self.count_once(scripts, work)))
    }

    fn count_once(&mut self, scripts: &Scripts, work: &Work) -> f64 {
        let flush = redis::cmd("FLUSHALL").arg("SYNC").exec(&mut self.con);
        flush.unwrap();
        let mut listener = self.server.connection();
        listener.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut subscription = listener.as_pubsub();
        subscription.subscribe(CHANNEL).unwrap();
        let [mut before, mut counted] = [redis::pipe(), redis::pipe()];
        (work.before)(scripts, &mut before);
        (work.counted)(scripts, &mut counted);
        if !before.is_empty() {
            before.exec(&mut self.con).unwrap();
        }
        self.callgrind("zero");
        let replies: Vec<Value> = counted.query(&mut self.con).unwrap();
        self.callgrind("dump");
        for (reply, expected) in replies.into_iter().zip(work.words.iter().cycle()) {
            let mut reply: Vec<Value> = redis::from_redis_value(reply).unwrap();
            let word: String = redis::from_redis_value(reply.swap_remove(0)).unwrap();
            assert_eq!(word, *expected, "the reply of a counted call");
        }
        self.counts += 1;
        let file = format!("counts.{}", self.counts);
        let total = total(&self.folder.path().join(file));
        total.expect("callgrind counts") / counted.len() as f64
    }

    /// Measures all cases.
    pub fn measure(&mut self) -> Vec<Figure> {
        let scripts = Scripts::load(&mut self.con);
        let version = self.version();
        let limited = LIMITED.iter().find(|(server, _)| *server == version);
        self.count_once(&scripts, &BARE_PAIR); // warms the caches
        let bare_pair = self.count(&scripts, &BARE_PAIR);
        let bare_denied = self.count(&scripts, &BARE_DENIED);
        let figures = CASES.map(|case| {
            let ours = self.count(&scripts, &case.work);
            let beside = match case.beside {
                Bare::Pair => ("a call of the bare pair", bare_pair),
                Bare::Denied => ("the bare acquire, denied", bare_denied),
            };
            Figure {
                what: case.what.to_owned(),
                unit: "instructions",
                ours,
                beside,
                ratio: ours / beside.1,
                limit: limited.map_or(Limit::None, |(_, factor)| {
                    Limit::AtMost((1_000.0 * factor * case.limit).round() / 1_000.0)
                }),
            }
        });
        figures.to_vec()
    }
}

/// Measures all cases. Without valgrind it prints that they are skipped, and returns none.
pub fn measure() -> Vec<Figure> {
    if !can_count() {
        eprintln!("skipped: counting the instructions of a script needs valgrind");
        return vec![];
    }
    let mut counted = Counted::start().expect("no redis-server or valkey-server on the PATH");
    counted.measure()
}
