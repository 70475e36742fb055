//! Executes a call by the script and by the model, and compares all effects.

mod line;
mod several;

use crate::call::{Call, Sent};
use crate::gate::Gate;
use crate::keys::State;
use crate::ledger::{Check, Entry, Violation, broken, check_order};
use crate::messages::{compare_messages, grants_in};
use crate::model::{Effects, Model, Moment, Waiter, channel};
use crate::protocol::exchange::RawReply;
use crate::scripts::{Loaded, Reply, words_of};
use luagate_memory::Server;

/// How many commands a script may call: a constant, plus a number for each waiter and holder.
const CALLS: u64 = 20;
const CALLS_EACH: u64 = 8;

/// Extra commands after a key was lost, when the model does not know the waiters: for the 100 that a script
/// processes.
const CALLS_IN_DOUBT: u64 = 300;

/// How long granting may stay suspended after the end of the last lease, if a key was lost: an eighth of the
/// lease, at most this number of ms.
const LATE: u64 = 1_000;

/// Published messages: channel and text.
pub type Messages = Vec<(String, String)>;

/// A call that is executed.
pub struct Run<'a> {
    pub server: &'a mut Server,
    pub loaded: &'a Loaded,
    pub micros: u64,
    pub listens: &'a dyn Fn(&str) -> bool,
    pub full: bool,
}

pub struct Done {
    pub reply: Reply,
    /// As received from the server.
    pub raw: RawReply,
    pub messages: Vec<(String, String)>,
    pub grants: u64,
    /// The content of the keys of each semaphore afterwards.
    pub states: Vec<Option<State>>,
}

impl Run<'_> {
    /// A call to one semaphore.
    pub fn one(mut self, gate: &mut Gate, sent: &Sent) -> Result<Done, Violation> {
        let call = &sent.call();
        let mut effects = Effects::default();
        let mut model = gate.model.clone();
        let moment = Moment { micros: self.micros, listens: self.listens };
        let expected = match call {
            Call::Acquire(ask) => model.acquire(ask, &moment, &mut effects),
            Call::Release { id, keep, fence } => model.release(id, *keep, *fence, &moment, &mut effects),
            Call::Refresh { id, lease_ms, fence } => model.refresh(id, *lease_ms, *fence, &moment),
            Call::Lookup { id } => model.lookup(id, &moment),
            Call::Inspect => Ok(model.inspect(&moment)),
            Call::Resize { limit, expected } => model.resize(*limit, *expected, &moment, &mut effects),
            _ => return broken("simulation", "not a call to one semaphore"),
        };
        let doubt = gate.is_in_doubt();
        let must_work =
            matches!(call, Call::Release { .. } | Call::Refresh { .. } | Call::Lookup { .. } | Call::Inspect);
        let entries = (gate.model.queue.len() + gate.model.holders.len()) as u64;
        let most = CALLS + CALLS_EACH * entries + if doubt { CALLS_IN_DOUBT } else { 0 };
        let before = gate.model.clone();
        let may_fail = expected.is_err() || doubt || self.full;
        let (raw, messages) = self.execute(sent, must_work, may_fail, most)?;
        let reply = words_of(&raw);
        let refused = reply.as_ref().is_err_and(|text| text.starts_with("OOM"));
        if !doubt && !refused {
            compare(&expected, &reply)?;
            compare_messages(&effects.reported, &messages, &gate.model, self.now())?;
            gate.model = model;
        }
        let latest = match call {
            Call::Acquire(ask) => self.now() + ask.wait_ms.max(ask.lease_ms).max(ask.at_least_ms),
            Call::Refresh { lease_ms, .. } => self.now() + lease_ms,
            _ => self.now(),
        };
        note_ends(gate, &before, latest);
        let grants = self.record(gate, &before, call, &reply, &messages)?;
        if let Ok(words) = &reply
            && doubt
            && grants == 0
        {
            self.check_resumption(gate, call, words)?;
        }
        let state = gate.check_keys(self.server, self.micros / 1_000)?;
        if let (Call::Acquire(ask), Ok(words)) = (call, &reply) {
            let waiting = state.as_ref().map_or(0, State::waiting);
            self.check_line(ask, words, (!doubt).then_some(&before), &messages, waiting)?;
        }
        Ok(Done { reply, raw, messages, grants, states: vec![state] })
    }

    pub fn now(&self) -> u64 {
        self.micros / 1_000
    }

    /// Runs a script. Invariants 5 and 7: an error has changed nothing, the number of commands is bounded,
    /// and calls that must succeed when memory is full do.
    pub fn execute(
        &mut self,
        sent: &Sent,
        must_work: bool,
        may_fail: bool,
        most: u64,
    ) -> Result<(RawReply, Messages), Violation> {
        let before = may_fail.then(|| self.server.store());
        let reply = self.loaded.run(self.server, sent);
        let messages = self.take_messages();
        if let Err(text) = words_of(&reply) {
            let is_refusal = text.starts_with("OOM") && self.full && !must_work;
            if !text.starts_with("LUAGATE") && !is_refusal {
                return broken("reply", text);
            }
            let is_same = before.is_some_and(|before| self.server.store() == before);
            if !is_same || !messages.iter().all(is_hint) {
                return broken(
                    "all or nothing",
                    format!("changed something, or sent {messages:?}, and returned the error {text}"),
                );
            }
        }
        let calls = self.server.calls_of_last_script();
        if calls > most {
            let text = format!("{calls} calls, at most {most} are allowed");
            return broken("bounded work", text);
        }
        Ok((reply, messages))
    }

    fn take_messages(&mut self) -> Messages {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let published = self.server.take_published().into_iter();
        published.map(|(channel, message)| (text(channel), text(message))).collect()
    }

    /// Invariants 1 to 4, by the replies and messages to clients.
    fn record(
        &self,
        gate: &mut Gate,
        before: &Model,
        call: &Call,
        reply: &Reply,
        messages: &[(String, String)],
    ) -> Result<u64, Violation> {
        let doubt = gate.is_in_doubt();
        let Ok(words) = reply else { return Ok(0) };
        let reported = grants_in(messages).into_iter();
        let ledger = &mut gate.ledger;
        let reported = reported.map(|(id, permits, fence, ends)| {
            let at_least_ms = ledger.served(&id);
            (id, Entry { permits, fence, ends, at_least_ms })
        });
        let reported: Vec<_> = reported.collect();
        let (own, given_back) = self.record_own(gate, call, words)?;
        let mut granted: Vec<(String, Entry)> = own.into_iter().chain(reported).collect();
        granted.sort_by_key(|(_, entry)| entry.fence);
        if !doubt {
            self.check_turns(gate, before, call, &granted)?;
        }
        // A release may hand over the permits that it gives back. That keys are inconsistent is for the next
        // call to notice.
        let is_more = granted.iter().map(|(_, entry)| entry.permits).sum::<u32>() > given_back;
        if doubt
            && is_more
            && let Some((id, entry)) = gate.ledger.live(self.now()).next()
        {
            return broken("loss", format!("granted while {id} is known to hold {entry:?}"));
        }
        let limit = if doubt { u32::MAX } else { reported_limit(call, words).unwrap_or(gate.model.limit) };
        for (id, entry) in &granted {
            gate.ledger.grant(self.micros, id, entry.clone(), limit)?;
        }
        Ok(granted.len() as u64)
    }

    /// The result for the caller: its grant, and how many permits it gave back.
    fn record_own(
        &self,
        gate: &mut Gate,
        call: &Call,
        words: &[String],
    ) -> Result<(Option<(String, Entry)>, u32), Violation> {
        let number = |at| number(words, at);
        match (call, words[0].as_str()) {
            (Call::Acquire(ask), "granted") => {
                let (permits, fence) = (number(1).unwrap_or(0) as u32, number(2).unwrap_or(0));
                let entry = Entry { permits, fence, ends: number(3), at_least_ms: ask.at_least_ms };
                gate.ledger.served(&ask.id);
                Ok((Some((ask.id.clone(), entry)), 0))
            }
            (Call::Acquire(ask), "queued") => {
                gate.ledger.wait(&ask.id, ask.at_least_ms);
                Ok((None, 0))
            }
            (Call::Refresh { id, .. }, "refreshed") => {
                let (fence, doubt) = (number(2).unwrap_or(0), gate.is_in_doubt());
                gate.ledger.refresh(self.now(), id, fence, number(3), doubt)?;
                Ok((None, 0))
            }
            (Call::Release { id, keep, fence }, _) => {
                let entry = gate.ledger.holders.get(id);
                let given_back = entry.map_or(0, |entry| entry.permits.saturating_sub(*keep));
                gate.ledger.keep(id, *keep, *fence, gate.is_in_doubt());
                Ok((None, given_back))
            }
            _ => Ok((None, 0)),
        }
    }

    /// Checks that no grant came before its turn.
    fn check_turns(&self, gate: &Gate, before: &Model, call: &Call, granted: &[(String, Entry)]) -> Check {
        let by_ticket = granted.iter().map(|(id, _)| {
            let place = before.place(id).map(|at| before.queue[at].ticket);
            (id.clone(), place.or(self.claimed_ticket(before, call, id)))
        });
        let waits = |waiter: &&Waiter| {
            let listens = waiter.inbox.is_empty() || (self.listens)(channel(&waiter.inbox));
            listens && waiter.patience_until > self.now() && gate.model.queue.contains(waiter)
        };
        let waiting: Vec<&Waiter> = before.queue.iter().filter(waits).collect();
        check_order(&by_ticket.collect::<Vec<_>>(), &waiting)
    }

    /// The place in line that the caller claims: by its ticket, or by its head start.
    fn claimed_ticket(&self, before: &Model, call: &Call, id: &str) -> Option<u64> {
        match call {
            Call::Acquire(ask) if ask.id != id => None,
            Call::Acquire(ask) => match before.ticket_of(ask, self.micros) {
                0 => (ask.head_start_ms > 0).then(|| before.early_ticket(ask, self.micros)),
                ticket => Some(ticket),
            },
            _ => None,
        }
    }

    /// The other side of invariant 11: granting does not stay suspended. And the limit in a reply is the
    /// stored one.
    fn check_resumption(&mut self, gate: &Gate, call: &Call, reply: &[String]) -> Check {
        let over = self.now() > gate.ledger.latest_end + 2 * LATE;
        let Some(state) = State::read(self.server, &gate.keys) else {
            return Ok(());
        };
        let suspended = match call {
            Call::Acquire(_) => state.suspended || !state.is_consistent(self.now()),
            // A release that grants no more than it gives back leaves the loss to the next call.
            Call::Release { .. } => state.suspended,
            _ => false,
        };
        if over && suspended && !state.has_permanent() {
            let text = format!(
                "granting is still suspended after the last lease ended at {}",
                gate.ledger.latest_end
            );
            return broken("loss", text);
        }
        let reported = reply.get(5).filter(|_| reply[0] == "queued");
        if reported.is_some_and(|limit| *limit != state.limit.to_string()) {
            return broken("limit", format!("reported {reply:?}, stored {}", state.limit));
        }
        Ok(())
    }
}

/// Notes the latest end that a call asked for.
fn note_ends(gate: &mut Gate, before: &Model, latest: u64) {
    gate.ledger.latest = gate.ledger.latest.max(latest);
    // Keys that had no expiry may get one now: a minute from now, within which each waiter asks again.
    let stayed = before.pinned || before.holders.values().any(|holder| holder.ends.is_none());
    if stayed && !(before.queue.is_empty() && gate.model.queue.is_empty()) {
        gate.ledger.is_brief = true;
    }
}

/// Whether a message only says when to ask again. It changes nothing, and stays true even if the call that
/// sent it is refused.
fn is_hint((_, text): &(String, String)) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    words.get(2) == Some(&"0") && words.get(3) != Some(&"-1")
}

fn number(words: &[String], at: usize) -> Option<u64> {
    words.get(at).and_then(|word| word.parse().ok())
}

/// The limit, if the reply contains it.
fn reported_limit(call: &Call, words: &[String]) -> Option<u32> {
    let limit = match call {
        Call::Acquire(_) if words[0] == "granted" => number(words, 6),
        Call::Resize { .. } => number(words, 2),
        _ => None,
    };
    limit.map(|limit| limit as u32)
}

/// Whether a word of a reply matches: equal, or expected as `*` (any) or `<=` and a number.
fn fits(expected: &str, word: &str) -> bool {
    let most = expected.strip_prefix("<=").and_then(|most| most.parse::<u64>().ok());
    match (most, word.parse()) {
        (Some(most), Ok(number)) => (1..=most).contains(&number),
        _ => expected == word || expected == "*",
    }
}

pub fn compare(expected: &Reply, reply: &Reply) -> Check {
    let fits = match (expected, reply) {
        (Ok(expected), Ok(reply)) => {
            expected.len() == reply.len()
                && expected.iter().zip(reply).all(|(expected, word)| fits(expected, word))
        }
        (Err(expected), Err(reply)) => reply.starts_with(expected.as_str()),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let text = |reply: &Reply| match reply {
        Ok(words) => words.join(" "),
        Err(text) => text.clone(),
    };
    broken("reply", format!("expected {}, got {}", text(expected), text(reply)))
}
