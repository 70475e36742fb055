//! Random calls of the scripts with a virtual clock. All replies, messages and stored data are compared.
//!
//! On both sides each script gets a prelude that takes the time from the arguments of the call. Everything
//! else is unchanged. Virtual time is ahead of the real clock, so keys do not expire on the real server. The
//! test deletes the keys that have expired in the model.

use super::answer::Answer;
use super::calls::{Call, INBOXES, Reported, Script, Times, all_keys, call, scripts};
use super::commands::escaped;
use super::pair::{Pair, receive, send};
use super::proof::{Layer, once_in, pick};
use luagate_memory::Store;
use rand::Rng;
use rand::rngs::StdRng;
use redis::{Connection, Msg};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The prelude of each script. TIME returns the last two arguments. An expiry that is not in the future
/// deletes the key, as a server does by its own clock.
const PRELUDE: &str = "
local redis = (function(real)
  local micros, seconds = table.remove(ARGV), table.remove(ARGV)
  local now = seconds * 1000 + math.floor(micros / 1000)
  local function timed(call)
    return function(command, ...)
      if command == 'TIME' then return {seconds, micros} end
      if command == 'PEXPIREAT' and tonumber((select(2, ...))) <= now then return call('DEL', (...)) end
      return call(command, ...)
    end
  end
  return {call = timed(real.call), pcall = timed(real.pcall), error_reply = real.error_reply}
end)(redis)
";

const TIMES: Times = Times {
    leases: &[0, 1, 5, 1_000, 1_500, 10_000, 30_000, 3_155_760_000_000],
    waits: &[0, 1, 2, 500, 5_000, 60_000, 86_400_000],
    lives: &[1, 5, 3_000, 60_000, 86_400_000],
};

const DAY: i64 = 86_400_000_000; // µs

#[derive(Clone)]
pub enum Step {
    Call(Call),
    /// Moves the clock by this number of µs.
    Jump(i64),
    /// Moves the clock to this number of µs after the next end of a lease, a waiter's deadline or a key.
    End(i64),
    /// Subscribes to an inbox, or unsubscribes.
    Listen(u8, bool),
    Full(bool),
    /// Copies all keys, for `Restore`.
    Copy,
    /// Restores one key from the copy.
    Restore(String),
    /// A command of a third party to a key.
    Outside(&'static str, String, Vec<&'static str>),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call(call) => call.fmt(f),
            Step::Jump(micros) => write!(f, "the clock jumps by {micros} us"),
            Step::End(micros) => write!(f, "the clock jumps to {micros} us after the next end"),
            Step::Listen(inbox, true) => write!(f, "a client subscribes to inbox:{inbox}"),
            Step::Listen(inbox, false) => write!(f, "inbox:{inbox} has no subscriber"),
            Step::Full(full) => write!(f, "memory is full: {full}"),
            Step::Copy => f.write_str("all keys are copied"),
            Step::Restore(key) => write!(f, "{key} is restored from the copy"),
            Step::Outside(command, key, words) => write!(f, "{command} {key} {words:?}"),
        }
    }
}

pub struct Scripts {
    pair: Pair,
    scripts: Vec<Script>,
    /// The SHA-1 of each script.
    sha1s: BTreeMap<String, String>,
    keys: Vec<String>,
    /// The connection that subscribes to inboxes, and those inboxes.
    subscriber: Connection,
    subscribed: BTreeSet<u8>,
    /// Receives all messages.
    monitor: Connection,
    /// The µs of the virtual clock.
    micros: u64,
    least_micros: u64,
    copy: Copied,
    reported: Reported,
}

/// A copy of all keys: DUMPs, and the model's store.
#[derive(Default)]
struct Copied {
    dumps: BTreeMap<String, Vec<u8>>,
    store: Store,
}

impl Scripts {
    pub fn new() -> Scripts {
        let mut pair = Pair::new();
        let scripts = scripts();
        let mut sha1s = BTreeMap::new();
        for script in &scripts {
            let load = ["SCRIPT", "LOAD", &format!("{PRELUDE}{}", script.text)];
            let (real, model) = (pair.real(&load), pair.model(&load));
            assert_eq!(real, model, "the name of {}", script.name);
            let Answer::Bytes(sha1) = real else {
                panic!("{} does not load: {real:?}", script.name);
            };
            sha1s.insert(script.name.clone(), String::from_utf8(sha1).unwrap());
        }
        let keys = all_keys().iter().map(|key| format!("{}:{key}", pair.server.prefix)).collect();
        let subscriber = pair.server.connection();
        let mut monitor = pair.server.connection();
        send(&mut monitor, &["PSUBSCRIBE", &format!("{}:*", pair.server.prefix)]);
        receive(&mut monitor);
        Scripts {
            pair,
            scripts,
            sha1s,
            keys,
            subscriber,
            subscribed: BTreeSet::new(),
            monitor,
            micros: 0,
            least_micros: 0,
            copy: Copied::default(),
            reported: Reported::default(),
        }
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}:{name}", self.pair.server.prefix)
    }

    fn fresh(&mut self) {
        if self.pair.server.is_private() {
            self.pair.fill(false);
        }
        let keys = self.keys.clone();
        self.pair.clear(&keys);
        for inbox in 0..INBOXES {
            self.listen(inbox, false);
        }
        self.copy = Copied::default();
        self.reported = Reported::default();
        // Whole seconds: a seed gives the same calls at any time.
        let start = self.pair.real_micros() / 1_000_000 * 1_000_000;
        self.least_micros = start + 10 * DAY as u64;
        self.set_clock(start + 30 * DAY as u64);
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Call(call) => self.call(call)?,
            Step::Jump(by) => self.set_clock(self.micros.saturating_add_signed(*by).max(self.least_micros)),
            Step::End(after) => {
                let next = self.next_end();
                if let Some(end) = next {
                    self.set_clock((end * 1_000).saturating_add_signed(*after).max(self.least_micros));
                }
            }
            Step::Listen(inbox, on) => self.listen(*inbox, *on),
            Step::Full(full) => self.pair.fill(*full),
            Step::Copy => self.keep_copy(),
            Step::Restore(key) => self.restore(key),
            Step::Outside(command, key, words) => {
                let key = self.full_name(key);
                let mut all = vec![*command, &key];
                all.extend(words);
                let (real, model) = (self.pair.real(&all), self.pair.model(&all));
                if !real.says(&model, self.pair.version) {
                    return Err(format!(
                        "the reply is\n    on the server: {real:?}\n    in the model:  {model:?}"
                    ));
                }
            }
        }
        let keys = self.keys.clone();
        self.pair.difference(&keys)
    }

    fn set_clock(&mut self, micros: u64) {
        self.micros = micros;
        let now = micros / 1_000;
        let ended: Vec<String> = self.pair.model.with_store(|store| {
            let ended =
                |key: &&String| matches!(store.expires_at(key.as_bytes()), Some(Some(end)) if end < now);
            self.keys.iter().filter(ended).cloned().collect()
        });
        if !ended.is_empty() {
            let mut words = vec!["DEL".to_owned()];
            words.extend(ended);
            self.pair.real(&words);
        }
        self.pair.model.with_store(|store| store.set_micros(micros));
    }

    /// The next time in ms when a lease, a waiter's deadline or a key ends.
    fn next_end(&mut self) -> Option<u64> {
        let now = self.micros / 1_000;
        let mut ends = Vec::new();
        for key in self.keys.clone() {
            if let Some(Some(end)) = self.pair.model.with_store(|store| store.expires_at(key.as_bytes())) {
                ends.push(end);
            }
            // Scores, and the numbers in records. Numbers that are not times are far away.
            let content = format!("{:?}", self.pair.content(&key));
            let numbers = content.split(|c: char| !c.is_ascii_digit());
            ends.extend(numbers.filter_map(|number| number.parse::<u64>().ok()));
        }
        let soon = now + 1..now + 40 * DAY as u64 / 1_000;
        ends.into_iter().filter(|end| soon.contains(end)).min()
    }

    fn listen(&mut self, inbox: u8, on: bool) {
        let channel = self.full_name(&format!("inbox:{inbox}"));
        if on == self.subscribed.contains(&inbox) {
            return;
        }
        let (word, reply) = if on { ("SUBSCRIBE", "subscribe") } else { ("UNSUBSCRIBE", "unsubscribe") };
        send(&mut self.subscriber, &[word, &channel]);
        loop {
            // Earlier messages come first.
            let value = self.subscriber.recv_response().unwrap();
            if is_confirmation(&value, reply) {
                break;
            }
        }
        if on {
            self.subscribed.insert(inbox);
        } else {
            self.subscribed.remove(&inbox);
        }
        self.pair.model.set_listeners(channel.as_bytes(), usize::from(on));
    }

    fn keep_copy(&mut self) {
        self.copy.store = self.pair.model.store();
        self.copy.dumps.clear();
        for key in self.keys.clone() {
            if let Answer::Bytes(dump) = self.pair.real(&["DUMP", &key]) {
                self.copy.dumps.insert(key, dump);
            }
        }
    }

    fn restore(&mut self, key: &str) {
        let key = self.full_name(key);
        let end = self.copy.store.expires_at(key.as_bytes()).flatten();
        let has_ended = end.is_some_and(|end| end < self.micros / 1_000);
        match self.copy.dumps.get(&key).filter(|_| !has_ended) {
            Some(dump) => {
                let end = end.unwrap_or(0).to_string();
                let words: [&[u8]; 6] =
                    [b"RESTORE", key.as_bytes(), end.as_bytes(), dump, b"REPLACE", b"ABSTTL"];
                let full = self.pair.is_full();
                if full {
                    self.pair.fill(false); // scripts never call RESTORE
                }
                let done = self.pair.real(&words);
                assert_eq!(done, Answer::Status("OK".to_owned()));
                if full {
                    self.pair.fill(true);
                }
            }
            None => drop(self.pair.real(&["DEL", &key])),
        }
        let copy = std::mem::take(&mut self.copy.store);
        self.pair.model.with_store(|store| store.restore_key(key.as_bytes(), &copy));
        self.copy.store = copy;
    }

    fn call(&mut self, call: &Call) -> Result<(), String> {
        let sha1 = &self.sha1s[&call.script];
        let mut words = self.reported.words(call, sha1, |name| self.full_name(name));
        for part in [self.micros / 1_000_000, self.micros % 1_000_000] {
            words.push(part.to_string().into_bytes());
        }
        let (real, model) = (self.pair.real(&words), self.pair.model(&words));
        if !real.says(&model, self.pair.version) {
            return Err(format!("the reply is\n    on the server: {real:?}\n    in the model:  {model:?}"));
        }
        self.reported.remember(call, &real);
        let (real, model) = (self.received(), self.pair.model.take_published());
        let prefix = format!("{}:", self.pair.server.prefix).into_bytes();
        let model: Vec<_> = model.into_iter().filter(|(channel, _)| channel.starts_with(&prefix)).collect();
        if real != model {
            let shown = |messages: &[(Vec<u8>, Vec<u8>)]| {
                let shown =
                    messages.iter().map(|(channel, text)| format!("{} {}", escaped(channel), escaped(text)));
                shown.collect::<Vec<_>>().join(", ")
            };
            let (real, model) = (shown(&real), shown(&model));
            return Err(format!(
                "what is published is\n    on the server: {real}\n    in the model:  {model}"
            ));
        }
        Ok(())
    }

    /// The messages that were published since the last call.
    fn received(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let end = self.full_name("end");
        self.pair.real(&["PUBLISH", &end, ""]);
        let mut all = Vec::new();
        loop {
            let message = Msg::from_owned_value(self.monitor.recv_response().unwrap()).unwrap();
            let channel: Vec<u8> = message.get_channel().unwrap();
            if channel == end.as_bytes() {
                return all;
            }
            all.push((channel, message.get_payload_bytes().to_vec()));
        }
    }
}

fn is_confirmation(value: &redis::Value, kind: &str) -> bool {
    match value {
        redis::Value::Array(parts) => {
            parts.first() == Some(&redis::Value::BulkString(kind.as_bytes().to_vec()))
        }
        redis::Value::Push { kind: push, .. } => push.to_string() == kind,
        _ => false,
    }
}

impl Layer for Scripts {
    type Step = Step;

    fn steps(&self, rng: &mut StdRng) -> Vec<Step> {
        let keys = all_keys();
        let names: Vec<&str> = self.scripts.iter().map(|script| script.name.as_str()).collect();
        // A sequence about one family covers more of it.
        let family = *pick(rng, &["semaphore", "semaphore", "semaphore", "latch", "autocomplete", ""]);
        let names: Vec<&str> = names
            .into_iter()
            .filter(|name| name.starts_with(family) || family == "semaphore" && *name == "holds")
            .collect();
        let has_losses = once_in(rng, 3);
        let can_fill = self.pair.server.is_private() && once_in(rng, 3);
        let mut steps: Vec<Step> = (0..INBOXES - 1).map(|inbox| Step::Listen(inbox, true)).collect();
        for _ in 0..rng.random_range(10..80) {
            steps.push(match rng.random_range(0..40) {
                0 => Step::Jump(*pick(
                    rng,
                    &[-3_600_000_000, -1_000, 1, 999, 60_000_000, 3_600_000_000, 2 * DAY],
                )),
                1..4 => Step::Jump(rng.random_range(0..3_000_000)),
                4..8 => Step::End(*pick(rng, &[-1_000, -1, 0, 0, 500, 999, 1_000, 1_001])),
                8 | 9 => Step::Listen(rng.random_range(0..INBOXES), once_in(rng, 2)),
                10 | 11 if can_fill => Step::Full(once_in(rng, 2)),
                12 if has_losses => Step::Copy,
                13 if has_losses => Step::Restore(pick(rng, &keys).clone()),
                14 if has_losses => {
                    let key = pick(rng, &keys).clone();
                    outside(rng, &key)
                }
                15..21 if family == "semaphore" => Step::Call(call(rng, "semaphore/acquire", &TIMES, true)),
                _ => {
                    let name = *pick(rng, &names);
                    Step::Call(call(rng, name, &TIMES, true))
                }
            });
        }
        steps
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), (usize, String)> {
        self.fresh();
        for (at, step) in steps.iter().enumerate() {
            self.step(step).map_err(|difference| (at, difference))?;
        }
        Ok(())
    }
}

/// As long as a state, but its numbers are invalid.
const FIFTY_BYTES: &str = "what is as long as a state, and has nothing in it.";

/// Third parties delete a key, change its type, or damage it.
const OUTSIDE: [(&str, &[&str]); 13] = [
    ("DEL", &[]),
    ("DEL", &[]),
    ("PERSIST", &[]),
    ("SET", &["text"]),
    ("LPUSH", &["bob", "Al"]),
    ("HSET", &["the state", "1 2 3"]),
    ("HSET", &["the state", FIFTY_BYTES]),
    ("HSET", &["ann", "8 bytes."]),
    ("HSET", &["bob", "forty bytes, as a waiter with an inbox is"]),
    ("ZADD", &["1.5", "ann"]),
    ("ZADD", &["-inf", "bob"]),
    ("ZREM", &["ann"]),
    ("HDEL", &["ann"]),
];

fn outside(rng: &mut StdRng, key: &str) -> Step {
    let (command, mut words) = *pick(rng, &OUTSIDE);
    if command == "ZADD" && key.starts_with("prefix") {
        words = &["0", "ann"]; // a range by bytes needs equal scores
    }
    Step::Outside(command, key.to_owned(), words.to_vec())
}
