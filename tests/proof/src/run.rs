//! A call, carried out by the script and by the model, and everything compared that comes of it.

use crate::client::Call;
use crate::gate::Gate;
use crate::keys::State;
use crate::ledger::{Check, Entry, Violation, broken, check_order};
use crate::messages::{compare_messages, grants_told};
use crate::model::{Effects, Model, Moment, Waiter, channel};
use crate::scripts::{Loaded, Reply};
use luagate_memory::Server;

/// How many commands a script may call where so many wait or hold: some, and some for each.
const CALLS: u64 = 20;
const CALLS_EACH: u64 = 8;

/// How many more where a key was lost, so that the model does not say who waits: for 100 that a script deals with.
const CALLS_IN_DOUBT: u64 = 300;

/// How long after the end of the last lease granting may stay suspended where a key was lost: an eighth of the lease, at most
/// this, in ms.
const LATE: u64 = 1_000;

/// What was published: channel and text.
type Messages = Vec<(String, String)>;

/// A call that is carried out.
pub struct Run<'a> {
    pub server: &'a mut Server,
    pub loaded: &'a Loaded,
    pub micros: u64,
    pub listens: &'a dyn Fn(&str) -> bool,
    pub full: bool,
}

pub struct Done {
    pub reply: Reply,
    pub messages: Vec<(String, String)>,
    pub grants: u64,
    /// What the keys of each semaphore hold then.
    pub states: Vec<Option<State>>,
}

impl Run<'_> {
    /// A call to one semaphore.
    pub fn one(mut self, gate: &mut Gate, call: &Call) -> Result<Done, Violation> {
        let (script, arguments) = words(call);
        let mut effects = Effects::default();
        let mut model = gate.model.clone();
        let moment = Moment {
            micros: self.micros,
            listens: self.listens,
        };
        let expected = match call {
            Call::Acquire(ask) => model.acquire(ask, &moment, &mut effects),
            Call::Release { id, keep, fence } => {
                model.release(id, *keep, *fence, &moment, &mut effects)
            }
            Call::Refresh {
                id,
                lease_ms,
                fence,
            } => model.refresh(id, *lease_ms, *fence, &moment),
            Call::Lookup { id } => model.lookup(id, &moment),
            Call::Inspect => Ok(model.inspect(&moment)),
            Call::Resize { limit, expected } => {
                model.resize(*limit, *expected, &moment, &mut effects)
            }
            Call::LockAll { .. } => return broken("simulation", "a call to several"),
        };
        let doubt = gate.is_in_doubt();
        let must_work = matches!(
            call,
            Call::Release { .. } | Call::Refresh { .. } | Call::Lookup { .. } | Call::Inspect
        );
        let keys = gate.keys.all().to_vec();
        let entries = (gate.model.queue.len() + gate.model.holders.len()) as u64;
        let most = CALLS + CALLS_EACH * entries + if doubt { CALLS_IN_DOUBT } else { 0 };
        let before = gate.model.clone();
        let may_fail = expected.is_err() || doubt || self.full;
        let (reply, messages) =
            self.execute(script, &keys, &arguments, must_work, may_fail, most)?;
        let refused = reply.as_ref().is_err_and(|text| text.starts_with("OOM"));
        if !doubt && !refused {
            compare(&expected, &reply)?;
            compare_messages(&effects.told, &messages, &gate.model, self.now())?;
            gate.model = model;
        }
        let latest = match call {
            Call::Acquire(ask) => self.now() + ask.wait_ms.max(ask.lease_ms),
            Call::Refresh { lease_ms, .. } => self.now() + lease_ms,
            _ => self.now(),
        };
        gate.ledger.latest = gate.ledger.latest.max(latest);
        // What stayed for ever may end now. Then it lives for a minute, in which whoever waits asks again.
        let stayed = before.pinned || before.holders.values().any(|holder| holder.ends.is_none());
        if stayed && !(before.queue.is_empty() && gate.model.queue.is_empty()) {
            gate.ledger.is_brief = true;
        }
        let grants = self.record(gate, &before, call, &reply, &messages)?;
        if let Ok(words) = &reply
            && doubt
            && grants == 0
        {
            self.check_resumption(gate, call, words)?;
        }
        let state = gate.check_keys(self.server, self.micros / 1_000)?;
        Ok(Done {
            reply,
            messages,
            grants,
            states: vec![state],
        })
    }

    /// A call to several mutexes.
    pub fn lock_all(
        mut self,
        gates: &mut [Gate],
        id: &str,
        lease_ms: u64,
    ) -> Result<Done, Violation> {
        let moment = Moment {
            micros: self.micros,
            listens: self.listens,
        };
        let mut effects = Effects::default();
        let mut models: Vec<Model> = gates.iter().map(|gate| gate.model.clone()).collect();
        let mut locks: Vec<&mut Model> = models.iter_mut().collect();
        let expected = Model::try_lock_all(&mut locks, id, lease_ms, &moment, &mut effects);
        if gates.iter().any(Gate::is_in_doubt) {
            // Which of several lost a key is for the calls to one to look at.
            return Ok(Done {
                reply: Ok(vec!["-".to_owned()]),
                messages: Vec::new(),
                grants: 0,
                states: Vec::new(),
            });
        }
        let keys: Vec<String> = gates
            .iter()
            .flat_map(|gate| gate.keys.all().to_vec())
            .collect();
        let entries = gates
            .iter()
            .map(|gate| gate.model.queue.len() + gate.model.holders.len());
        let most = CALLS * gates.len() as u64 + CALLS_EACH * entries.sum::<usize>() as u64;
        let arguments = [id.to_owned(), lease_ms.to_string()];
        let (reply, messages) = self.execute(
            "semaphore/try_lock_all",
            &keys,
            &arguments,
            false,
            self.full,
            most,
        )?;
        let mut grants = 0;
        if !reply.as_ref().is_err_and(|text| text.starts_with("OOM")) {
            compare(&expected, &reply)?;
            for (gate, model) in gates.iter_mut().zip(models) {
                gate.ledger.latest = gate.ledger.latest.max(self.now() + lease_ms);
                let before = std::mem::replace(&mut gate.model, model);
                grants += self.record_changes(gate, &before)?;
            }
        }
        let mut states = Vec::new();
        for gate in gates {
            states.push(gate.check_keys(self.server, self.micros / 1_000)?);
        }
        Ok(Done {
            reply,
            messages,
            grants,
            states,
        })
    }

    fn now(&self) -> u64 {
        self.micros / 1_000
    }

    /// Runs a script. Invariants 5 and 7: an error has changed nothing; the number of calls is bounded; and what must work
    /// works when memory is full.
    fn execute(
        &mut self,
        script: &str,
        keys: &[String],
        arguments: &[String],
        must_work: bool,
        may_fail: bool,
        most: u64,
    ) -> Result<(Reply, Messages), Violation> {
        let before = may_fail.then(|| self.server.store());
        let reply = self.loaded.run(self.server, script, keys, arguments);
        let messages = self.take_messages();
        if let Err(text) = &reply {
            let is_refusal = text.starts_with("OOM") && self.full && !must_work;
            if !text.starts_with("LUAGATE") && !is_refusal {
                return broken("reply", text.clone());
            }
            let is_same = before.is_some_and(|before| self.server.store() == before);
            if !is_same || !messages.is_empty() {
                return broken(
                    "all or nothing",
                    format!("changed something, and answered {text}"),
                );
            }
        }
        let calls = self.server.calls_of_last_script();
        if calls > most {
            let text = format!("{calls} calls, where {most} are the most");
            return broken("bounded work", text);
        }
        Ok((reply, messages))
    }

    fn take_messages(&mut self) -> Messages {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let published = self.server.take_published().into_iter();
        published
            .map(|(channel, message)| (text(channel), text(message)))
            .collect()
    }

    /// Invariants 1 to 4, by what was told.
    fn record(
        &self,
        gate: &mut Gate,
        before: &Model,
        call: &Call,
        reply: &Reply,
        messages: &[(String, String)],
    ) -> Result<u64, Violation> {
        let now = self.now();
        let doubt = gate.is_in_doubt();
        let Ok(words) = reply else { return Ok(0) };
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let told = grants_told(messages);
        let mut granted: Vec<(String, Entry)> = Vec::new();
        let mut given_back = 0;
        match (call, words[0].as_str()) {
            (Call::Acquire(ask), "granted") => {
                let entry = Entry {
                    permits: number(1).unwrap_or(0) as u32,
                    fence: number(2).unwrap_or(0),
                    ends: number(3),
                };
                granted.push((ask.id.clone(), entry));
            }
            (Call::Refresh { id, .. }, "refreshed") => {
                let fence = number(2).unwrap_or(0);
                gate.ledger.refresh(now, id, fence, number(3), doubt)?;
            }
            (Call::Release { id, keep, fence }, _) => {
                let entry = gate.ledger.holders.get(id);
                given_back = entry.map_or(0, |entry| entry.permits.saturating_sub(*keep));
                gate.ledger.keep(id, *keep, *fence);
            }
            _ => {}
        }
        for (id, permits, fence, ends) in told {
            granted.push((
                id,
                Entry {
                    permits,
                    fence,
                    ends,
                },
            ));
        }
        granted.sort_by_key(|(_, entry)| entry.fence);
        if !doubt {
            let by_ticket = granted.iter().map(|(id, _)| {
                let place = before.place(id).map(|at| before.queue[at].ticket);
                (id.clone(), place.or(told_ticket(call, id)))
            });
            let waits = |waiter: &&Waiter| {
                let listens = waiter.inbox.is_empty() || (self.listens)(channel(&waiter.inbox));
                listens && waiter.patience_until > now && gate.model.queue.contains(waiter)
            };
            let waiting: Vec<&Waiter> = before.queue.iter().filter(waits).collect();
            check_order(&by_ticket.collect::<Vec<_>>(), &waiting)?;
        }
        // What a release gives back may be handed over; that keys are not consistent is for the next call to notice.
        let is_more = granted.iter().map(|(_, entry)| entry.permits).sum::<u32>() > given_back;
        if doubt
            && is_more
            && let Some((id, entry)) = gate.ledger.live(now).next()
        {
            return broken(
                "loss",
                format!("granted while {id} is known to hold {entry:?}"),
            );
        }
        let limit = match call {
            Call::Acquire(_) if words[0] == "granted" => number(6),
            Call::Resize { .. } => number(2),
            _ => None,
        };
        let limit = limit.map_or(gate.model.limit, |limit| limit as u32);
        let limit = if doubt { u32::MAX } else { limit };
        for (id, entry) in &granted {
            gate.ledger.grant(self.micros, id, entry.clone(), limit)?;
        }
        Ok(granted.len() as u64)
    }

    /// The same for one of several mutexes, by how the model changed, which answered as the script did.
    fn record_changes(&self, gate: &mut Gate, before: &Model) -> Result<u64, Violation> {
        for id in before.holders.keys() {
            if !gate.model.holders.contains_key(id) {
                gate.ledger.keep(id, 0, 0);
            }
        }
        let holders = gate.model.holders.iter();
        let mut granted: Vec<_> = holders
            .filter(|(id, holder)| before.holders.get(*id) != Some(holder))
            .collect();
        granted.sort_by_key(|(_, holder)| holder.fence);
        for (id, holder) in &granted {
            let entry = Entry {
                permits: holder.permits,
                fence: holder.fence,
                ends: holder.ends,
            };
            gate.ledger.grant(self.micros, id, entry, 1)?;
        }
        Ok(granted.len() as u64)
    }

    /// Invariant 11, the other side: granting does not stay suspended. And the limit that a caller is told is stored.
    fn check_resumption(&mut self, gate: &Gate, call: &Call, reply: &[String]) -> Check {
        let over = self.now() > gate.ledger.latest_end + 2 * LATE;
        let frees = matches!(call, Call::Acquire(_) | Call::Release { .. });
        let Some(state) = State::read(self.server, &gate.keys) else {
            return Ok(());
        };
        let suspended = state.suspended || !state.is_consistent(self.now());
        if over && frees && suspended && !state.has_permanent() {
            let text = format!(
                "suspended still, after the last lease ended at {}",
                gate.ledger.latest_end
            );
            return broken("loss", text);
        }
        let told = reply.get(5).filter(|_| reply[0] == "queued");
        if told.is_some_and(|limit| *limit != state.limit.to_string()) {
            return broken("limit", format!("told {reply:?}, stored {}", state.limit));
        }
        Ok(())
    }
}

/// The place in line that the caller says it had.
fn told_ticket(call: &Call, id: &str) -> Option<u64> {
    match call {
        Call::Acquire(ask) if ask.id == id => Some(ask.ticket).filter(|ticket| *ticket > 0),
        _ => None,
    }
}

fn compare(expected: &Reply, reply: &Reply) -> Check {
    let fits = match (expected, reply) {
        (Ok(expected), Ok(reply)) => expected == reply,
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
    broken(
        "reply",
        format!("expected {}, got {}", text(expected), text(reply)),
    )
}

fn words(call: &Call) -> (&'static str, Vec<String>) {
    let text = |number: &dyn ToString| number.to_string();
    match call {
        Call::Acquire(ask) => {
            let permits = ask
                .permits
                .map_or("all".to_owned(), |permits| permits.to_string());
            let arguments = vec![
                ask.id.clone(),
                permits,
                text(&ask.limit),
                text(&ask.lease_ms),
                text(&ask.wait_ms),
                ask.inbox.clone(),
                text(&ask.ticket),
            ];
            ("semaphore/acquire", arguments)
        }
        Call::Release { id, keep, fence } => (
            "semaphore/release",
            with_fence(vec![id.clone(), text(keep)], *fence),
        ),
        Call::Refresh {
            id,
            lease_ms,
            fence,
        } => (
            "semaphore/refresh",
            with_fence(vec![id.clone(), text(lease_ms)], *fence),
        ),
        Call::Lookup { id } => ("semaphore/lookup", vec![id.clone()]),
        Call::Inspect => ("semaphore/inspect", vec!["0".to_owned(), "1000".to_owned()]),
        Call::Resize { limit, expected } => {
            let expected = expected.map_or("-1".to_owned(), |expected| expected.to_string());
            ("semaphore/resize", vec![text(limit), expected])
        }
        Call::LockAll { id, lease_ms } => {
            ("semaphore/try_lock_all", vec![id.clone(), text(lease_ms)])
        }
    }
}

/// A fence of 0 is left out.
fn with_fence(mut arguments: Vec<String>, fence: u64) -> Vec<String> {
    arguments.extend((fence > 0).then(|| fence.to_string()));
    arguments
}
