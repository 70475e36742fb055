//! A call as it is sent: the script, its keys and its arguments.

use crate::model::{Ask, AskOne};
use crate::protocol::call::Packed;
use crate::protocol::exchange::RawReply;
use crate::protocol::script::{ScriptName, Scripts};
use crate::protocol::value::{Refusal, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// The scripts as they are published.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua/dist");
    Scripts::new(|name| {
        let path = format!("{folder}/{}.lua", file_of(name));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        text.leak()
    })
});

fn file_of(name: ScriptName) -> &'static str {
    use ScriptName::*;
    match name {
        Acquire => "semaphore/acquire",
        Release => "semaphore/release",
        Refresh => "semaphore/refresh",
        Lookup => "semaphore/lookup",
        Inspect => "semaphore/inspect",
        Resize => "semaphore/resize",
        TryAcquireSeveral => "semaphore/try_acquire_several",
        CountDown => "latch/count_down",
        Wait => "latch/wait",
        Count => "latch/count",
        Delete => "latch/delete",
        RecentAdd => "autocomplete/recent_add",
        RecentRemove => "autocomplete/recent_remove",
        RecentMatch => "autocomplete/recent_match",
        PrefixAdd => "autocomplete/prefix_add",
        PrefixRemove => "autocomplete/prefix_remove",
        PrefixMatch => "autocomplete/prefix_match",
    }
}

/// The names of the scripts, by their SHA-1.
static NAMES: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
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

/// A command of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// The next call is also for a node to which the slot is still moving.
    Asking,
    /// The next call. It contains the text of its script, or only the SHA-1.
    Call { with_text: bool },
    /// The nodes of a cluster, and their slots.
    Slots,
}

/// The words of each command in a packet.
pub(crate) fn commands(packet: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (mut rest, mut commands) = (packet, Vec::new());
    while !rest.is_empty() {
        let count = length(&mut rest, b"*");
        let words = (0..count).map(|_| {
            let length = length(&mut rest, b"$");
            let (word, after) = rest.split_at(length);
            rest = after.strip_prefix(b"\r\n").expect("the end of a word");
            word.to_vec()
        });
        commands.push(words.collect());
    }
    commands
}

fn length(rest: &mut &[u8], sign: &[u8]) -> usize {
    let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
    let digits = rest[..end].strip_prefix(sign).expect("another sign");
    *rest = &rest[end + 2..];
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

/// The error that a server returns with this text.
pub(crate) fn server_error(text: &str) -> RawReply {
    Ok(Value::Error(Refusal::read(text)))
}

/// The commands of a packet, and the calls among them.
pub(crate) fn parse(packet: &[u8]) -> (Vec<Command>, Vec<Sent>) {
    let mut calls = Vec::new();
    let parsed = commands(packet).into_iter().map(|words| match words[0].as_slice() {
        b"ASKING" => Command::Asking,
        name => {
            let with_text = name == b"EVAL";
            let script = if with_text { script_with(&words[1]) } else { script_of(&text_of(&words[1])) };
            calls.push(Sent::from_words(script, &words[2..]));
            Command::Call { with_text }
        }
    });
    (parsed.collect(), calls)
}

/// The name of the script with this SHA-1, or with this text.
fn script_of(sha1: &str) -> String {
    NAMES.get(sha1).expect("a script of the manifest").clone()
}

fn script_with(text: &[u8]) -> String {
    script_of(&sha1_smol::Sha1::from(text).digest().to_string())
}

fn text_of(word: &[u8]) -> String {
    String::from_utf8(word.to_vec()).unwrap()
}

impl Sent {
    pub(crate) fn new(packed: &Packed) -> Sent {
        let (_, mut calls) = parse(packed.by_sha1());
        calls.remove(0)
    }

    /// `words`: the number of keys, the keys, the arguments.
    fn from_words(script: String, words: &[Vec<u8>]) -> Sent {
        let mut words = words.iter().map(|word| text_of(word));
        let count: usize = words.next().and_then(|count| count.parse().ok()).expect("the number of keys");
        Sent { script, keys: words.by_ref().take(count).collect(), arguments: words.collect() }
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
        let (small, large) =
            (|at| self.number::<u32>(at).unwrap_or(0), |at| self.number::<u64>(at).unwrap_or(0));
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
                head_start_ms: large(9),
            }),
            "semaphore/release" => Call::Release { id, keep: small(1), fence: large(2) },
            "semaphore/refresh" => Call::Refresh { id, lease_ms: large(1), fence: large(2) },
            "semaphore/lookup" => Call::Lookup { id },
            "semaphore/inspect" => Call::Inspect,
            "semaphore/resize" => Call::Resize { limit: small(0), expected: self.number(1) },
            "semaphore/try_acquire_several" => {
                let one = |at| AskOne {
                    permits: small(at),
                    limit: small(at + 1),
                    lease_ms: large(at + 2),
                    at_least_ms: large(at + 3),
                };
                Call::TryAll { id, asked: (1..self.arguments.len()).step_by(4).map(one).collect() }
            }
            "latch/count_down" => Call::CountDown { id, count: small(1), life_ms: large(2) },
            "latch/wait" => {
                Call::Wait { count: small(0), life_ms: large(1), wait_ms: large(2), inbox: text(3) }
            }
            "latch/count" => Call::Count,
            "latch/delete" => Call::Delete,
            other => panic!("{other} is not simulated"),
        }
    }

    /// Whether it could grant a permit to this id.
    pub fn acquires(&self, id: &str) -> bool {
        let acquires = ["semaphore/acquire", "semaphore/try_acquire_several"].contains(&self.script.as_str());
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
