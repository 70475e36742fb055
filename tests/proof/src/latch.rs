//! A readable model of one latch: the ids that counted down, the waiters, and the reply of each call.

use crate::call::{Call, Sent};
use crate::ledger::{Check, Violation, broken};
use crate::protocol::keys::LatchKeys;
use crate::run::{Done, Run, compare};
use crate::scripts::{Reply, words_of};
use luagate_memory::Server;
use std::collections::{BTreeMap, BTreeSet};

/// How many commands a script of the latch calls at most, plus one for each waiter that it notifies.
const CALLS: u64 = 12;

#[derive(Clone, Debug)]
pub struct Latch {
    pub(crate) keys: LatchKeys,
    /// How many must count down; 0: the latch does not exist.
    count: u32,
    counted: BTreeSet<String>,
    ends: u64,
    /// Inboxes to notify, each with its deadline. The key that stores them has its own expiry.
    waiters: BTreeMap<String, u64>,
    waiters_end: u64,
}

impl Latch {
    pub fn new(name: &str) -> Latch {
        Latch {
            keys: LatchKeys::new("luagate", name).unwrap(),
            count: 0,
            counted: BTreeSet::new(),
            ends: 0,
            waiters: BTreeMap::new(),
            waiters_end: 0,
        }
    }

    pub fn is_open(&self) -> bool {
        self.count > 0 && self.counted.len() >= self.count as usize
    }

    fn left(&self) -> usize {
        self.count as usize - self.counted.len()
    }

    fn forget(&mut self) {
        (self.count, self.counted) = (0, BTreeSet::new());
    }

    /// Keys may have expired.
    pub fn time_passed(&mut self, server: &mut Server, now: u64) -> Check {
        if self.ends < now {
            self.forget();
        }
        if self.waiters_end < now {
            self.waiters.clear();
        }
        let [latch, waiters] = self.keys.list();
        let mut is_there = |key: &str| server.with_store(|s| s.expires_at(key.as_bytes())).is_some();
        if is_there(latch) != (self.count > 0) || is_there(waiters) == self.waiters.is_empty() {
            return broken("nothing left behind", format!("of the latch {self:?}"));
        }
        Ok(())
    }

    /// The server restarted with the data it had when `older` was the state of this latch, or empty.
    pub fn come_back(&mut self, older: Option<&Latch>) {
        *self = match older {
            Some(older) => older.clone(),
            None => Latch { keys: self.keys.clone(), ..Latch::new("x") },
        };
    }

    /// Executes a call by the script and by this model, and compares them.
    pub fn run(&mut self, mut run: Run, sent: &Sent) -> Result<Done, Violation> {
        let (mut next, now, is_full) = (self.clone(), run.now(), run.full);
        let (expected, reported) = next.answer(&sent.call(), now);
        let most = CALLS + self.waiters.len() as u64;
        let (raw, messages) = run.execute(sent, self.count > 0, is_full, most)?;
        let reply = words_of(&raw);
        if reply.is_ok() {
            compare(&expected, &reply)?;
            let text = format!("{} 0 0 0 {now}", self.keys.list()[0]);
            let reported: Vec<_> = reported.into_iter().map(|to| (to, text.clone())).collect();
            if reported != messages {
                return broken("messages", format!("expected {reported:?}, got {messages:?}"));
            }
            *self = next;
        }
        Ok(Done { reply, raw, messages, grants: 0, states: Vec::new() })
    }

    /// The reply, and the inboxes that are notified.
    fn answer(&mut self, call: &Call, now: u64) -> (Reply, Vec<String>) {
        let now_word = now.to_string();
        let mut reported = Vec::new();
        let words: Vec<String> = match call {
            Call::CountDown { id, count, life_ms } => {
                let is_new = !self.is_open() && !self.counted.contains(id);
                self.start(*count, now + life_ms);
                if is_new {
                    self.counted.insert(id.clone());
                }
                if self.is_open() {
                    reported = self.tell(now);
                }
                let word = if is_new { "counted" } else { "already" };
                vec![word.into(), self.left().to_string(), self.count.to_string()]
            }
            Call::Wait { count, life_ms, wait_ms, inbox } => {
                self.start(*count, now + life_ms.max(wait_ms));
                if self.is_open() {
                    reported = self.tell(now);
                    vec!["open".into(), self.count.to_string()]
                } else {
                    self.waiters.retain(|_, until| *until > now);
                    let mut retry_after = 1_000;
                    if *wait_ms > 0 && !inbox.is_empty() {
                        let until = self.waiters.entry(inbox.clone()).or_default();
                        *until = (now + wait_ms).max(*until);
                        self.waiters_end = self.ends;
                        retry_after = (wait_ms / 3).max(1);
                    }
                    let (left, count) = (self.left().to_string(), self.count.to_string());
                    vec!["closed".into(), left, count, retry_after.to_string()]
                }
            }
            Call::Count if self.count == 0 => vec!["none".into()],
            Call::Count if self.is_open() => vec!["open".into(), self.count.to_string()],
            Call::Count => {
                let (left, count) = (self.left().to_string(), self.count.to_string());
                vec!["closed".into(), left, count]
            }
            Call::Delete => {
                let was_there = self.count > 0;
                self.forget();
                reported = self.tell(now);
                vec![if was_there { "deleted" } else { "none" }.into()]
            }
            other => vec![format!("{other:?}")],
        };
        (Ok([words, vec![now_word]].concat()), reported)
    }

    fn start(&mut self, count: u32, ends: u64) {
        if self.count == 0 {
            (self.count, self.ends) = (count, 0);
        }
        self.ends = self.ends.max(ends);
    }

    /// Notifies all waiters, the one with the latest deadline first.
    fn tell(&mut self, now: u64) -> Vec<String> {
        let mut reported: Vec<_> = std::mem::take(&mut self.waiters).into_iter().collect();
        reported.retain(|(_, until)| *until > now);
        reported.sort_by(|(one, a), (other, b)| (b, other).cmp(&(a, one)));
        reported.into_iter().map(|(inbox, _)| inbox).collect()
    }
}
