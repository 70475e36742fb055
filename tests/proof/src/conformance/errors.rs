//! Promise: a script that ends with an error has changed nothing. In each prepared state, each key in turn
//! gets a wrong type, each record a wrong length, and every script is called.

use super::steps::Run;
use super::{Host, Suite};
use crate::ledger::{Check, broken};
use crate::pattern::Bindings;
use luagate_memory::Store;
use redis::Value;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// Scripts of one kind of object.
struct Kind {
    group: &'static str,
    /// The keys, and their types.
    keys: &'static [(&'static str, &'static str)],
    /// Name, and the steps that prepare it: words as in `CALLS`, and `pause ms`, `del key`, `subscribe
    /// channel`.
    states: &'static [(&'static str, &'static [&'static str])],
    /// A script and its arguments; `-` stands for an empty argument. Scripts that take several objects get
    /// `n` and `m`.
    calls: &'static [&'static str],
}

const SEMAPHORE: Kind = Kind {
    group: "semaphore",
    keys: &[("meta", "hash"), ("holders", "zset"), ("queue", "zset")],
    states: &[
        ("no keys", &[]),
        ("partly used", &["acquire alice 1 3 30000 0 - 0"]),
        ("full", &["acquire alice 1 1 30000 0 - 0"]),
        (
            "full, no id waits any more",
            &["acquire alice 1 1 9 0 - 0", "acquire bob 1 1 9 20 @inbox 0", "release bob 0"],
        ),
        ("one waits", &["acquire alice 1 1 30000 0 - 0", "acquire bob 1 1 30000 15000 @inbox 0"]),
        (
            "three wait, one without messages, one has no subscriber",
            &[
                "acquire alice 1 1 30000 0 - 0",
                "acquire bob 1 1 30000 15000 @inbox 0",
                "acquire carol 1 1 30000 15000 - 0",
                "acquire erin 1 1 30000 15000 @inbox:dead 0",
            ],
        ),
        (
            "two holders, two wait",
            &[
                "acquire alice 2 3 30000 0 - 0",
                "acquire frank 1 3 20000 0 - 0",
                "acquire bob 1 3 30000 15000 @inbox 0",
                "acquire carol 1 3 30000 15000 @inbox 0",
            ],
        ),
        (
            "too few are free for the first waiter",
            &[
                "acquire alice 1 2 30000 0 - 0",
                "acquire bob 2 2 30000 15000 @inbox 0",
                "acquire carol 1 2 9 15000 @inbox 0",
            ],
        ),
        ("an ended lease", &["acquire alice 2 3 5 0 - 0", "acquire frank 1 3 20000 0 - 0", "pause 10"]),
        (
            "an ended lease, one waits",
            &["acquire alice 1 1 5 0 - 0", "acquire bob 1 1 30000 15000 @inbox 0", "pause 10"],
        ),
        ("a minimum hold", &["acquire alice 2 3 30000 0 - 0 0 20000"]),
        (
            "a minimum hold, full, two wait",
            &[
                "acquire alice 2 2 30000 0 - 0 0 20000",
                "acquire bob 1 2 30000 15000 @inbox 0",
                "acquire carol 1 2 30000 15000 @inbox 0",
            ],
        ),
        ("cooling down", &["acquire alice 2 3 30000 0 - 0 0 20000", "release alice 1"]),
        ("permanent", &["acquire alice 1 1 0 0 - 0", "acquire bob 1 1 30000 15000 @inbox 0"]),
        (
            "pinned",
            &[
                "resize 3 -1",
                "acquire alice 2 3 30000 0 - 0",
                "acquire bob 2 3 9 15000 @inbox 0",
                "resize 1 -1",
            ],
        ),
        ("suspended", &["acquire alice 1 1 30000 0 - 0", "del meta", "acquire bob 1 1 30000 15000 @inbox 0"]),
        (
            "a loss that no call has noticed",
            &["acquire alice 1 1 30000 0 - 0", "acquire bob 1 1 9 15000 - 0", "del holders"],
        ),
    ],
    calls: &[
        "acquire alice 1 1 30000 0 - 0",
        "acquire bob 1 1 30000 15000 @inbox 0",
        "acquire bob 1 1 30000 0 - 0",
        "acquire dave 1 1 30000 0 - 0",
        "acquire dave 1 1 0 15000 @inbox#s 0",
        "acquire dave 2 3 30000 15000 @inbox 0 1",
        "acquire dave 1 1 30000 15000 @inbox 0 0 20000 10000",
        "acquire dave 1 1 30000 15000 @inbox 5",
        "acquire dave all 3 30000 0 - 0",
        "acquire dave 9 1 30000 15000 @inbox 0",
        "try_acquire_several dave 1 1 30000 0 1 3 30000 0",
        "try_acquire_several alice 1 1 30000 0 1 3 30000 0",
        "try_acquire_several bob 1 1 30000 0 1 3 30000 0",
        "release alice 0",
        "release alice 1",
        "release bob 0",
        "release dave 0",
        "refresh alice 30000",
        "refresh alice 60000",
        "refresh alice 1000",
        "refresh alice 0",
        "refresh bob 1000",
        "lookup alice",
        "lookup bob",
        "resize 5 -1",
        "resize 1 -1",
        "resize 0 -1",
        "inspect 0 100",
    ],
};

const LATCH: Kind = Kind {
    group: "latch",
    keys: &[("latch", "hash"), ("waiters", "zset")],
    states: &[
        ("no keys", &[]),
        ("closed", &["count_down alice 2 30000"]),
        ("closed, one waits", &["count_down alice 2 30000", "wait 2 30000 15000 @inbox"]),
        ("waits that have ended", &["wait 1 30000 5 @inbox", "wait 1 30000 15000 @inbox:b", "pause 10"]),
        ("open", &["count_down alice 1 30000"]),
        ("open, a message is due", &["wait 1 30000 15000 @inbox", "count_down alice 1 30000"]),
    ],
    calls: &[
        "count_down alice 2 30000",
        "count_down bob 1 60000",
        "wait 2 60000 15000 @inbox",
        "wait 1 30000 0 -",
        "count",
        "delete",
    ],
};

const AUTOCOMPLETE: Kind = Kind {
    group: "autocomplete",
    keys: &[("prefix", "zset"), ("recent", "list")],
    states: &[
        ("no keys", &[]),
        ("one each", &["prefix_add ann", "recent_add ann 5"]),
        (
            "three each",
            &["prefix_add ann bob eve", "recent_add ann 5", "recent_add bob 5", "recent_add eve 5"],
        ),
    ],
    calls: &[
        "prefix_add ann",
        "prefix_add zoe",
        "prefix_remove ann zoe",
        "prefix_match a 10",
        "recent_add ann 2",
        "recent_add zoe 1",
        "recent_remove ann",
        "recent_match a 10",
    ],
};

const KINDS: [&Kind; 3] = [&SEMAPHORE, &LATCH, &AUTOCOMPLETE];

/// The commands that make a key of each type. A server in memory has only the first four types.
const TYPES: [(&str, &str); 6] = [
    ("string", "SET KEY x"),
    ("hash", "HSET KEY field x"),
    ("zset", "ZADD KEY 1 x"),
    ("list", "LPUSH KEY x"),
    ("set", "SADD KEY x"),
    ("stream", "XADD KEY * field x"),
];

/// The lengths of wrong records: shorter and longer than each kind of record.
const LENGTHS: [usize; 9] = [0, 1, 7, 9, 19, 21, 31, 32, 40];

/// The calls that ended with an error, as `script: key is a type`.
pub type Seen = BTreeSet<String>;

/// The fields of a hash in the order of their names, or the dump of another key. A dump of a hash has any
/// order.
type Content = (BTreeMap<String, Vec<u8>>, Value);

/// What an error must not change.
enum Snapshot {
    Store(Store),
    /// The content and the end of each key.
    Keys(Vec<(Content, i64)>),
}

/// A step as the conformance cases write it.
fn step(group: &str, line: &str) -> Json {
    let words: Vec<&str> = line.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    match words[..] {
        ["pause", ms] => json!({"pause_ms": ms.parse::<u64>().unwrap()}),
        ["del", key] => json!({"command": ["DEL", format!("@{key}")]}),
        [script, ref argv @ ..] => {
            let on = if script.ends_with("_several") { json!(["n", "m"]) } else { json!("m") };
            json!({"call": format!("{group}/{script}"), "on": on, "argv": argv, "reply": "*"})
        }
        [] => json!({}),
    }
}

/// The names of all keys of a call.
fn keys_of(kind: &Kind, call: &str) -> Vec<String> {
    let ons: &[&str] = if call.starts_with("try_acquire_several") { &["m", "n"] } else { &["m"] };
    ons.iter().flat_map(|on| kind.keys.iter().map(move |(key, _)| format!("@{key}:{on}"))).collect()
}

/// One prepared state after another, on one server.
struct Trials<'a> {
    run: Run<'a>,
}

impl<'a> Trials<'a> {
    fn new(suite: &'a Suite, host: &'a mut dyn Host, prefix: &str) -> Trials<'a> {
        host.begin();
        let mut run = Run { suite, host, bindings: Bindings::new(prefix), inboxes: BTreeMap::new() };
        let subscribed = run.steps(&[json!({"subscribe": "@inbox"})]);
        subscribed.unwrap_or_else(|error| panic!("{error}"));
        Trials { run }
    }

    /// New objects in this state, with a change of their keys.
    fn prepare(&mut self, kind: &Kind, steps: &[&str], change: &[Json]) -> Result<(), String> {
        let keys = kind.keys.iter().flat_map(|(key, _)| [format!("@{key}:m"), format!("@{key}:n")]);
        let words: Vec<String> = ["DEL".to_owned()].into_iter().chain(keys).collect();
        let steps = steps.iter().map(|line| step(kind.group, line));
        let steps: Vec<Json> = [json!({"command": words})].into_iter().chain(steps).collect();
        self.run.steps(&steps)?;
        self.run.steps(change)?;
        self.run.discard_messages()?;
        Ok(())
    }

    /// Calls with these keys changed. Returns the error, which must have changed nothing.
    fn call(
        &mut self,
        kind: &Kind,
        steps: &[&str],
        change: &[Json],
        call: &str,
    ) -> Result<Option<String>, String> {
        self.prepare(kind, steps, change)?;
        let run = &mut self.run;
        let keys = keys_of(kind, call);
        run.host.before_script(false);
        let before = run.snapshot(&keys)?;
        let reply = run.reply_to(&step(kind.group, call))?;
        match &reply {
            Ok(_) => Ok(None),
            Err(error) if !run.snapshot(&keys)?.is_like(&before) => {
                Err(format!("it wrote, and then: {error}"))
            }
            Err(error) if run.discard_messages()? > 0 => Err(format!("it sent a message, and then: {error}")),
            Err(error) if error.contains("LUAGATE ") || error.contains("WRONGTYPE") => {
                Ok(Some(error.clone()))
            }
            Err(error) => Err(format!("a fault of the script: {error}")),
        }
    }

    /// Each key has each wrong type.
    fn wrong_types(
        &mut self,
        kind: &Kind,
        types: &[(&str, &str)],
        seen: &mut Seen,
        failures: &mut Vec<String>,
    ) {
        for (state, steps) in kind.states {
            for call in kind.calls {
                for key in keys_of(kind, call) {
                    let right = kind.keys.iter().find(|(name, _)| key[1..].split(':').next() == Some(name));
                    for (wrong, command) in
                        types.iter().filter(|(name, _)| Some(*name) != right.map(|(_, of)| *of))
                    {
                        let words: Vec<&str> =
                            command.split(' ').map(|word| if word == "KEY" { &*key } else { word }).collect();
                        let change = [json!({"command": ["DEL", key]}), json!({"command": words})];
                        match self.call(kind, steps, &change, call) {
                            Ok(None) => {}
                            Ok(Some(_)) => {
                                let script = call.split(' ').next().unwrap_or_default();
                                seen.insert(format!("{}/{script}: {key} is a {wrong}", kind.group));
                            }
                            Err(error) => {
                                failures.push(format!("{call}; {state}; {key} is a {wrong}: {error}"))
                            }
                        }
                    }
                }
            }
        }
    }

    /// Each field of the hash has a text of each wrong length, of which all bytes are 0 or all are `x`.
    fn wrong_records(&mut self, kind: &Kind, failures: &mut Vec<String>) -> Result<usize, String> {
        let hash = format!("@{}", kind.keys[0].0);
        let mut tried = 0;
        for (state, steps) in kind.states {
            self.prepare(kind, steps, &[])?;
            let fields = self.run.fields(&hash)?;
            for (field, stored) in &fields {
                for length in LENGTHS.iter().filter(|length| **length != stored.len()) {
                    for byte in ["00", "78"] {
                        let text = json!({"hex": byte.repeat(*length)});
                        let change = [json!({"command": ["HSET", hash, field, text]})];
                        for call in kind.calls {
                            tried += 1;
                            if let Err(error) = self.call(kind, steps, &change, call) {
                                failures.push(format!(
                                    "{call}; {state}; {field}: {length} bytes {byte}: {error}"
                                ));
                            }
                        }
                    }
                }
            }
        }
        Ok(tried)
    }
}

impl Snapshot {
    /// Redis 6.2 knows the end of a key only as a remaining time.
    fn is_like(&self, other: &Snapshot) -> bool {
        match (self, other) {
            (Snapshot::Store(store), Snapshot::Store(other)) => store == other,
            (Snapshot::Keys(keys), Snapshot::Keys(others)) => {
                let mut pairs = keys.iter().zip(others);
                pairs.all(|((data, end), (other, other_end))| data == other && (end - other_end).abs() <= 2)
            }
            _ => false,
        }
    }
}

impl Run<'_> {
    fn snapshot(&mut self, keys: &[String]) -> Result<Snapshot, String> {
        if let Some(store) = self.host.store() {
            return Ok(Snapshot::Store(store));
        }
        let mut contents = Vec::new();
        for key in keys {
            let name = self.bindings.text(key)?.into_bytes();
            let end = match self.end_of(&name)? {
                Value::Int(end) => end,
                other => return Err(format!("an end: {other:?}")),
            };
            let content = match self.fields(key) {
                Ok(fields) => (fields.into_iter().collect(), Value::Nil),
                Err(_) => (BTreeMap::new(), self.query(&[b"DUMP".to_vec(), name])?),
            };
            contents.push((content, end));
        }
        Ok(Snapshot::Keys(contents))
    }

    /// The fields of a hash, and their texts. An error for another type.
    fn fields(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
        let key = self.bindings.text(key)?.into_bytes();
        let reply = self.query(&[b"HGETALL".to_vec(), key])?;
        redis::from_redis_value(reply).map_err(|error| error.to_string())
    }

    /// Forgets all messages so far, and returns how many there were.
    fn discard_messages(&mut self) -> Result<usize, String> {
        let channel = self.bindings.text("@inbox")?;
        Ok(self.host.messages(&channel).len())
    }
}

/// Tries everything. `types`: how many of `TYPES` the server has.
///
/// # Errors
/// Each call that ended with an error and changed something.
pub fn all_types(
    suite: &Suite,
    host: &mut dyn Host,
    prefix: &str,
    types: usize,
) -> Result<Seen, Vec<String>> {
    let mut trials = Trials::new(suite, host, prefix);
    let (mut seen, mut failures) = (Seen::new(), Vec::new());
    for kind in KINDS {
        trials.wrong_types(kind, &TYPES[..types], &mut seen, &mut failures);
    }
    if failures.is_empty() { Ok(seen) } else { Err(failures) }
}

/// Tries records of wrong lengths. Returns the number of calls.
///
/// # Errors
/// Each call that ended with an error of Lua, or with any error after it changed something.
pub fn all_records(suite: &Suite, host: &mut dyn Host, prefix: &str) -> Result<usize, Vec<String>> {
    let mut trials = Trials::new(suite, host, prefix);
    let (mut tried, mut failures) = (0, Vec::new());
    for kind in [&SEMAPHORE, &LATCH] {
        match trials.wrong_records(kind, &mut failures) {
            Ok(count) => tried += count,
            Err(error) => failures.push(error),
        }
    }
    if failures.is_empty() { Ok(tried) } else { Err(failures) }
}

/// Checks that the calls cover all scripts with these keys, and that each key of a wrong type was refused at
/// least once.
///
/// # Errors
/// What is missing.
pub fn covers(seen: &Seen, keys: &BTreeMap<String, Vec<String>>) -> Check {
    for (script, names) in keys {
        for name in names.iter().filter(|name| *name != "...") {
            let refused = format!("{script}: @{name}:m is a ");
            if !seen.iter().any(|seen| seen.starts_with(&refused)) {
                return broken("errors", format!("{script} was never called with a wrong type of {name}"));
            }
        }
    }
    Ok(())
}
