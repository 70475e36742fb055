//! A call as it is sent: the script, its keys and its arguments.

use crate::model::{Ask, AskOne};
use crate::protocol::call::Packed;
use redis::Value;
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// The names of the scripts, by their SHA-1.
static SCRIPTS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let manifest = include_str!("../../../lua/manifest.json");
    let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap();
    let scripts = manifest["scripts"].as_object().unwrap().iter();
    let named = scripts.map(|(name, entry)| (entry["sha1"].as_str().unwrap().to_owned(), name));
    named.map(|(sha1, name)| (sha1, name.clone())).collect()
});

/// A call as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sent {
    pub script: String,
    pub keys: Vec<String>,
    pub arguments: Vec<String>,
}

/// The same call with its arguments parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Acquire(Ask),
    /// `fence` 0: whatever grant the id has.
    Release {
        id: String,
        keep: u32,
        fence: u64,
    },
    Refresh {
        id: String,
        lease_ms: u64,
        fence: u64,
    },
    Lookup {
        id: String,
    },
    /// Lists all holders and waiters.
    Inspect,
    Resize {
        limit: u32,
        expected: Option<u32>,
    },
    /// Acquires permits of several semaphores at once.
    TryAll {
        id: String,
        asked: Vec<AskOne>,
    },
    CountDown {
        id: String,
        count: u32,
        life_ms: u64,
    },
    Wait {
        count: u32,
        life_ms: u64,
        wait_ms: u64,
        inbox: String,
    },
    Count,
    Delete,
}

impl Sent {
    pub(crate) fn new(packed: &Packed) -> Sent {
        let words = redis::parse_redis_value(packed.by_sha1());
        let Ok(Value::Array(words)) = words else {
            panic!("not a command: {words:?}");
        };
        let mut words = words.into_iter().map(|word| match word {
            Value::BulkString(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("not a word of a command: {other:?}"),
        });
        let mut next = || words.next().unwrap_or_default();
        assert_eq!(next(), "EVALSHA");
        let sha1 = next();
        let script = SCRIPTS.get(&sha1).expect("a script of the manifest");
        let count: usize = next().parse().unwrap();
        Sent { script: script.clone(), keys: (0..count).map(|_| next()).collect(), arguments: words.collect() }
    }

    fn text(&self, at: usize) -> String {
        self.arguments.get(at).cloned().unwrap_or_default()
    }

    /// A numeric argument: `None` if it is not a number, 0 if it is missing.
    fn number<T: std::str::FromStr + Default>(&self, at: usize) -> Option<T> {
        let word = self.arguments.get(at);
        word.map_or(Some(T::default()), |word| word.parse().ok())
    }

    pub fn call(&self) -> Call {
        let (id, text) = (self.text(0), |at| self.text(at));
        let (small, large) = (|at| self.number::<u32>(at).unwrap_or(0), |at| self.number::<u64>(at).unwrap_or(0));
        match self.script.as_str() {
            "semaphore/acquire" => Call::Acquire(Ask {
                id,
                permits: self.number(1),
                limit: small(2),
                lease_ms: large(3),
                wait_ms: large(4),
                inbox: text(5),
                ticket: large(6),
                max_waiting: large(7),
                at_least_ms: large(8),
            }),
            "semaphore/release" => Call::Release { id, keep: small(1), fence: large(2) },
            "semaphore/refresh" => Call::Refresh { id, lease_ms: large(1), fence: large(2) },
            "semaphore/lookup" => Call::Lookup { id },
            "semaphore/inspect" => Call::Inspect,
            "semaphore/resize" => Call::Resize { limit: small(0), expected: self.number(1) },
            "semaphore/try_acquire_all" => {
                let one = |at| AskOne {
                    permits: small(at),
                    limit: small(at + 1),
                    lease_ms: large(at + 2),
                    at_least_ms: large(at + 3),
                };
                Call::TryAll { id, asked: (1..self.arguments.len()).step_by(4).map(one).collect() }
            }
            "latch/count_down" => Call::CountDown { id, count: small(1), life_ms: large(2) },
            "latch/wait" => Call::Wait { count: small(0), life_ms: large(1), wait_ms: large(2), inbox: text(3) },
            "latch/count" => Call::Count,
            "latch/delete" => Call::Delete,
            other => panic!("{other} is not simulated"),
        }
    }

    /// Whether it could grant a permit to this id.
    pub fn acquires(&self, id: &str) -> bool {
        let acquires = ["semaphore/acquire", "semaphore/try_acquire_all"].contains(&self.script.as_str());
        acquires && self.text(0) == id
    }

    /// Whether it concerns the semaphore with this first key.
    pub fn is_on(&self, meta: &str) -> bool {
        self.keys.iter().step_by(3).any(|key| key == meta)
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, script) = self.script.split_once('/').unwrap_or_default();
        write!(f, "{script} of {}", self.keys[0])?;
        let mut arguments = self.arguments.iter();
        arguments.try_for_each(|word| match word.as_str() {
            "" => f.write_str(" ''"),
            word => write!(f, " {word}"),
        })
    }
}
