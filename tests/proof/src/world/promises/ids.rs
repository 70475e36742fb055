//! Promises about the ids that callers use.

use crate::call::Sent;
use crate::client::{Outcome, Why};
use crate::ledger::{Check, broken};
use crate::model::is_cooling;
use crate::protocol::exchange::RawReply;
use crate::protocol::waiter::NotGranted;
use crate::scripts::words_of;
use crate::world::{Host, World};
use std::time::Instant;

/// Slightly less than the time for which a client remembers a wait that it gave up, in µs.
const MEMORY: u64 = 110_000_000;

/// The shortest time for which an unconfirmed release of one semaphore is repeated, in µs. A later grant ends
/// with its lease.
const RELEASED_FOR: u64 = 15_000_000;

/// An id that has nothing, or soon will have nothing, according to its client.
pub(in crate::world) struct Promised {
    gate: usize,
    id: String,
    since: u64,
    /// The end of its release, if that is pending.
    until: Option<Instant>,
    /// A call of the wait had no reply, so the client knows that it may still be executed.
    unknown: bool,
}

/// The events of an id since a caller began to use it.
#[derive(Default)]
pub(in crate::world) struct Noted {
    /// The place in line that its caller got.
    pub(in crate::world) ticket: Option<u64>,
    /// A third party revoked what it had.
    pub(in crate::world) is_revoked: bool,
    /// A release was executed.
    is_released: bool,
    /// The fences that were named by releases which found the permit. `None`: the release named none.
    released: Vec<Option<u64>>,
    /// The id has a permit or a place from a call whose reply was not awaited (`is_stray`). It was executed
    /// after a release, on a connection that is closed (`is_late`; then the permit ends with its lease).
    is_stray: bool,
    pub(in crate::world) is_late: bool,
    /// The last call of its caller met such a permit or place.
    has_met_remains: bool,
    /// The fences of the permits that this client had dropped before.
    dropped: Vec<u64>,
    /// How many calls of the client had been refused before.
    refusals: u64,
    /// The last call of this id was denied while such a permit was still in use.
    denied_by: Option<u64>,
}

impl World {
    /// Whether the id has something, as far as it can be known.
    fn has_something(&self, gate: usize, id: &str) -> bool {
        let (gate, now) = (&self.gates[gate], self.now());
        let holder = gate.model.holders.get(id);
        let waiter = gate.model.queue.iter().find(|waiter| waiter.id == id);
        holder.is_some_and(|holder| !gate.is_in_doubt() && holder.lives(now))
            || waiter.is_some_and(|waiter| waiter.patience_until > now)
    }

    /// A call of a client was executed. `is_open`: its connection is open, so a release can follow there.
    pub(in crate::world) fn note_call(
        &mut self,
        name: usize,
        sent: &Sent,
        is_awaited: bool,
        is_open: bool,
        reply: &RawReply,
    ) {
        let Some(id) = sent.arguments.first() else {
            return;
        };
        let acquires = sent.acquires(id);
        let word = words_of(reply).ok().map(|words| words[0].clone());
        let was_denied = word.as_deref() == Some("denied");
        let releases_all = sent.script == "semaphore/release" && sent.arguments[1] == "0";
        let released = (releases_all && word.as_deref() == Some("released")).then(|| {
            let fence = sent.arguments.get(2).and_then(|fence| fence.parse().ok());
            fence.filter(|fence| *fence > 0)
        });
        for gate in 0..self.gates.len() {
            if !sent.is_on(self.gates[gate].keys.list()[0]) {
                continue;
            }
            let has = self.has_something(gate, id);
            let (holders, in_doubt) = (&self.gates[gate].model.holders, self.gates[gate].is_in_doubt());
            let is_held = |fence: &&u64| {
                let mut holders = holders.iter();
                holders.any(|(name, holder)| holder.fence == **fence && !is_cooling(name))
            };
            let ids = &mut self.hosts[name].ids;
            if let Some(noted) = ids.get_mut(&(gate, id.clone())) {
                if is_awaited && acquires {
                    noted.has_met_remains = noted.is_late || noted.is_stray;
                }
                // The order of a call for several semaphores is left to the tests of the library.
                if is_awaited && sent.script == "semaphore/acquire" {
                    noted.denied_by =
                        noted.dropped.iter().find(is_held).copied().filter(|_| was_denied && !in_doubt);
                }
                if !acquires {
                    noted.is_released = true;
                    noted.released.extend(released);
                    noted.is_stray &= has;
                    noted.is_late &= has;
                } else if !is_awaited && has {
                    noted.is_stray = true;
                    noted.is_late |= noted.is_released && !is_open;
                }
            }
        }
    }

    /// A message reaches its client. If it is a grant for a wait that the client gave up, the client must
    /// release it.
    pub(in crate::world) fn note_message(&mut self, name: usize, text: &str) {
        let words: Vec<&str> = text.split(' ').collect();
        let Host { promised, ids, .. } = &mut self.hosts[name];
        for promised in promised {
            let is_grant = words[0] == promised.id && words.get(2).is_some_and(|word| *word != "0");
            let is_remembered = promised.unknown && self.mono - promised.since < MEMORY;
            if is_grant
                && is_remembered
                && let Some(noted) = ids.get_mut(&(promised.gate, promised.id.clone()))
            {
                noted.is_late = false;
            }
        }
    }

    /// Takes an outcome of a caller.
    pub(in crate::world) fn take_outcome(&mut self, name: usize, outcome: Outcome) -> Check {
        let (keys, id, why, unknown) = match outcome {
            Outcome::Granted(number) => {
                let client = &self.hosts[name].client;
                let identity = client.permits[&number].identity.clone();
                let mut gates = self.gates.iter();
                let gate = gates.position(|gate| gate.keys == identity.keys).unwrap();
                let ids = &mut self.hosts[name].ids;
                if let Some(noted) = ids.get_mut(&(gate, identity.id.clone())) {
                    noted.ticket = None;
                    noted.released.retain(Option::is_some); // this permit is a new one
                }
                return Ok(());
            }
            Outcome::Opened { keys, begun } => {
                return if self.open_at.is_some_and(|at| at >= begun) {
                    Ok(())
                } else {
                    broken("latch", format!("{} was not open", keys.list()[0]))
                };
            }
            Outcome::Nothing { keys, id, why, unknown } => (keys, id, why, unknown),
        };
        let mut gates = self.gates.iter();
        let gate = gates.position(|gate| gate.keys == keys).unwrap();
        let (key, now) = ((gate, id.clone()), self.now());
        let host = &mut self.hosts[name];
        let noted = host.ids.get(&key);
        let is_revoked = noted.is_some_and(|noted| noted.is_revoked);
        let was_in_line = noted.is_some_and(|noted| noted.ticket.is_some());
        if matches!(why, Why::Ended(NotGranted::Revoked)) && !is_revoked {
            return broken("revoked", format!("{id} was not revoked"));
        }
        if let Why::Lost { fence } = why
            && noted.is_some_and(|noted| noted.released.contains(&fence))
        {
            return broken("loss", format!("{id} was released, and its holder is told that it was lost"));
        }
        // Nobody else uses the id. What it has may be older than its place only if the server has restored
        // it, and older than its call only if a call on a connection that is closed has run late. While
        // fences are ahead of the clock, a grant does not show when it was made, so a caller that has called
        // again does not take it for its own.
        let has_remains = noted.is_some_and(|noted| noted.has_met_remains);
        let holder = self.gates[gate].model.holders.get(&id);
        let is_ahead = holder.is_some_and(|holder| holder.fence >= (now + 1) * 1_000);
        let has_remains = has_remains || is_ahead;
        let is_held_already = matches!(why, Why::Ended(NotGranted::AlreadyHeld { .. }));
        if is_held_already && self.count.losses == 0 && (was_in_line || !has_remains) {
            return broken("own grant", format!("{id} is not used by others: {why}"));
        }
        // Unless the release of such a permit was refused, each call of the client runs after it, or is made
        // again.
        let denied_by =
            noted.and_then(|noted| noted.denied_by.filter(|_| noted.refusals == host.client.refusals));
        if let (Some(fence), true) = (denied_by, matches!(why, Why::Denied(_))) {
            return broken(
                "order of releases",
                format!("{id} is denied because of {fence}, which was dropped before"),
            );
        }
        // A permit of another caller is not released.
        if !is_held_already {
            let mut pending = host.client.outbox.entries.values().map(|entry| &entry.release);
            let pending = pending.find(|pending| pending.keys == keys && pending.id == id);
            let until = pending.and_then(|pending| pending.until);
            host.promised.push(Promised { gate, id, since: self.mono, until, unknown });
        }
        Ok(())
    }

    /// Whether the client still has to do something with an id, or a call with it is on its way.
    fn is_open(&self, name: usize, gate: usize, id: &str) -> bool {
        let (keys, client) = (&self.gates[gate].keys, &self.hosts[name].client);
        let is_it = |sent: &Sent| {
            sent.is_on(keys.list()[0]) && sent.arguments.first().is_some_and(|other| other == id)
        };
        let mut pending = client.outbox.entries.values().map(|entry| &entry.release);
        let mut calls = client.flights.iter().flat_map(|flight| &flight.calls);
        pending.any(|pending| pending.keys == *keys && pending.id == id)
            || calls.any(is_it)
            || client.unsent().any(|sent| is_it(&sent))
    }

    /// Checks that an id that has nothing according to its client has nothing on the server, once every call
    /// that could change this was executed or lost.
    pub(in crate::world) fn check_promised(&mut self, name: usize) -> Check {
        let promised = std::mem::take(&mut self.hosts[name].promised);
        for promised in promised {
            let Promised { gate, id, .. } = &promised;
            let is_open = self.is_open(name, *gate, id);
            let has = self.has_something(*gate, id);
            let now = self.hosts[name].now(self.mono).instant();
            let is_over = promised.until.is_some_and(|until| until <= now);
            let is_old = is_over || self.mono - promised.since > RELEASED_FOR;
            let noted = self.hosts[name].ids.get(&(*gate, id.clone()));
            let ends_by_itself =
                noted.is_some_and(|noted| noted.is_late || noted.is_stray && !promised.unknown);
            if has && !is_open && !ends_by_itself && !is_old {
                let text = format!("{id} should have nothing: {:?}", self.gates[*gate].model);
                return broken("nothing left behind", text);
            }
            let host = &mut self.hosts[name];
            if has || is_open {
                host.promised.push(promised);
            } else {
                host.ids.remove(&(*gate, id.clone()));
            }
        }
        Ok(())
    }

    /// A caller begins to use an id.
    pub(in crate::world) fn note_id(&mut self, name: usize, gate: usize, id: &str) {
        let (key, has) = ((gate, id.to_owned()), self.has_something(gate, id));
        let may_hold = self.gates[gate].is_in_doubt() && id.contains("/own"); // an id made for one call is in no copy
        let may_be_of_copy = self.count.losses > 0 && (has || may_hold);
        let is_open = self.is_open(name, gate, id);
        let keys = &self.gates[gate].keys;
        let host = &mut self.hosts[name];
        // Its client did not release a permit that ended by its own clock. Or a former process of this client
        // used the id.
        let is_forgotten = !is_open || !host.ids.contains_key(&key);
        host.promised.retain(|promised| promised.gate != gate || promised.id != id);
        // Remains of an earlier call or of a copy end with their lease.
        let is_stray = host.ids.get(&key).is_some_and(|before| before.is_stray || before.is_late);
        let is_late = may_be_of_copy || has && (is_stray || is_forgotten);
        let posted =
            host.client.permits.values().filter(|permit| permit.is_posted && permit.identity.keys == *keys);
        let dropped = posted.map(|permit| permit.identity.fence).collect();
        let refusals = host.client.refusals;
        host.ids.insert(key, Noted { is_late, dropped, refusals, ..Noted::default() });
    }

    pub(in crate::world) fn is_mutex(gate: usize) -> bool {
        gate == 2
    }
}
