//! What holds in a world at every moment, beyond what each call answers.

use super::{Host, MUTEXES, World};
use crate::call::{Call, Sent};
use crate::client::waits::Caller;
use crate::client::{Outcome, Patience, Thread, micros};
use crate::ledger::{Check, broken};
use crate::model::channel;
use crate::scripts::words_of;
use redis::{RedisResult, Value};
use std::time::Duration;

/// How soon something happens for which nobody has to wait, in µs.
const SOON: u64 = 50_000;

/// How long a client remembers a wait that it gave up, in µs; a little less.
const MEMORY: u64 = 110_000_000;

/// For how long a release that is not confirmed is repeated at least, in µs. What a call is granted that is carried out later
/// ends by itself.
const RELEASED_FOR: u64 = 15_000_000;

/// An id that has nothing any more, as its client was told, or will have nothing soon.
pub(super) struct Promised {
    gate: usize,
    id: String,
    since: u64,
    /// A call of the wait was not answered, so its client knows that it may still be carried out.
    unknown: bool,
}

/// What happened to an id since a caller began to use it.
#[derive(Default)]
pub(super) struct Noted {
    /// The place in line that its caller was told.
    pub(super) ticket: Option<u64>,
    /// Somebody took away what it had.
    pub(super) is_revoked: bool,
    /// A release was carried out.
    is_released: bool,
    /// What it has comes from a call that nobody waited for, which was carried out before a release, or after it. Then it ends by
    /// itself.
    is_stray: bool,
    pub(super) is_late: bool,
}

impl World {
    /// Which threads have something to do.
    pub fn due(&self) -> impl Iterator<Item = (usize, Thread)> {
        let hosts = self.hosts.iter().enumerate();
        let awake = hosts.filter(|(_, host)| !host.is_suspended);
        awake.flat_map(|(name, host)| {
            let now = host.now(self.mono).instant();
            let plans = host.client.plans();
            plans.filter_map(move |(thread, at)| (at <= now).then_some((name, thread)))
        })
    }

    /// Whether all that is due until then, or a ms before it, was done, and nothing is on its way.
    pub fn is_prompt(&self, until: u64) -> bool {
        let is_later = self.hosts.iter().all(|host| {
            let mut plans = host.client.plans();
            !host.is_suspended && plans.all(|(_, at)| micros(at) + host.behind + 1_000 > until)
        });
        is_later && self.due().next().is_none() && self.flight_count() == 0 && self.mails() == 0
    }

    /// Those who wait for permits.
    fn waiting(&self) -> impl Iterator<Item = (&Host, &Caller)> {
        self.hosts.iter().flat_map(|host| {
            let callers = host.client.callers.values();
            callers.map(move |caller| (host, caller))
        })
    }

    /// Invariant 10: whoever is first of those who live and could have what is free is served within 50 ms; where dead
    /// ones stand in front, or stood there when it asked last, within a second for each.
    pub(super) fn check_liveness(&mut self) -> Check {
        let calm = self.calm_since.is_some_and(|since| self.mono > since + 6_000_000);
        if !calm {
            return Ok(());
        }
        for place in 0..self.gates.len() {
            let (now, gate) = (self.now(), &self.gates[place]);
            let mut queue = gate.model.queue.iter().enumerate();
            let first = queue.find_map(|(first, waiter)| {
                let mut waiting = self.waiting().filter_map(|(host, caller)| match caller {
                    Caller::Waits(waiting, want) if want.keys == gate.keys => Some((host, waiting)),
                    _ => None,
                });
                let known = waiting.find(|(_, waiting)| waiting.waiter.target.id == waiter.id);
                known.map(|(host, waiting)| (first, waiter, &host.client, waiting))
            });
            let could = first.filter(|(first, waiter, client, _)| {
                let in_use: u32 = gate.ledger.live(now).map(|(_, entry)| entry.permits).sum();
                // Who has no inbox, or is not there but its process is, may come back until its patience ends: what is free is
                // kept for it.
                let mut in_front = gate.model.queue.iter().take(*first);
                let hears = client.is_up
                    && client.hears
                    && client.listens
                    && !waiter.inbox.is_empty()
                    && in_front.all(|waiter| !waiter.inbox.is_empty() && self.is_dead(&waiter.inbox))
                    && waiter.patience_until > now;
                hears && !gate.is_in_doubt() && in_use + waiter.permits <= gate.model.limit
            });
            let Some((first, waiter, _, waiting)) = could else {
                self.waits[place] = None;
                continue;
            };
            let id = waiter.id.clone();
            let since = match &self.waits[place] {
                Some((same, since)) if *same == id => *since,
                _ => self.mono,
            };
            // It knows of those that stood in front when it asked last.
            let position = waiting.waiter.target.entry.position.saturating_sub(1);
            let bound = SOON + 1_000_000 * position.max(first as u64).min(5);
            if self.mono > since + bound {
                let text = format!("{id} could be served since {since} µs, at place {first}: {:?}", gate.model);
                return broken("wake-up", text);
            }
            self.waits[place] = Some((id, since));
        }
        self.check_times()
    }

    /// Whether the process with this inbox is gone.
    fn is_dead(&self, inbox: &str) -> bool {
        let mut clients = self.hosts.iter().map(|host| &host.client);
        !clients.any(|client| client.is_alive && client.channel == channel(inbox))
    }

    /// Waits that end, latches that open, leases that are renewed and losses that are told: all in time.
    fn check_times(&self) -> Check {
        for host in &self.hosts {
            let client = &host.client;
            let (now, mono) = (host.now(self.mono).instant(), self.mono);
            for caller in client.callers.values() {
                let (since, patience, what) = match caller {
                    Caller::Waits(waiting, want) | Caller::GivesBack { waiting, want, .. } => {
                        (waiting.since, want.patience, &want.id)
                    }
                    Caller::Watches { waiting, keys, patience, .. } => {
                        let opened = self.open_since.unwrap_or(mono);
                        let begun = micros(waiting.since) + host.behind;
                        let hears = client.is_up && client.hears && client.listens;
                        let late = mono - opened.max(begun);
                        if hears && self.latch.is_open() && late > SOON + 10_000 * waiting.asks {
                            return broken("wake-up", format!("{} is open", keys.latch));
                        }
                        (waiting.since, *patience, &keys.latch)
                    }
                    _ => continue,
                };
                if let Patience::For(ms) = patience
                    && now > since + Duration::from_millis(ms) + Duration::from_micros(SOON)
                {
                    return broken("timeout", format!("{what} waits longer than {ms} ms"));
                }
            }
            for permit in client.permits.values() {
                let (Some((left, since)), true) = (permit.leased, permit.is_had) else {
                    continue;
                };
                if since <= host.calm_since.unwrap_or(now) {
                    continue; // when something may have been late
                }
                let passed = now.saturating_duration_since(since);
                let is_long = left >= Duration::from_millis(20) && !permit.is_excused;
                if permit.identity.lease.renewed && is_long && passed > left / 2 {
                    let text = format!("{} is not renewed: {permit:?}", permit.identity.id);
                    return broken("renewal", text);
                }
                if permit.on_lost && permit.told == 0 && passed > left + Duration::from_micros(SOON) {
                    let text = format!("of {} nobody is told", permit.identity.id);
                    return broken("loss is told", text);
                }
            }
        }
        Ok(())
    }

    /// Invariant 6: nothing is left but what was to stay.
    pub(super) fn end(&mut self) -> Check {
        for place in 0..self.gates.len() {
            let gate = &self.gates[place];
            let stays = gate.model.pinned || gate.model.holders.values().any(|holder| holder.ends.is_none());
            let over = self.now() > gate.ledger.latest + 62_000;
            if over && !stays && !gate.is_in_doubt() && gate.is_there(&mut self.server) {
                let keys = self.gates[place].keys.names();
                return broken("nothing left behind", format!("{keys:?} is there still"));
            }
        }
        Ok(())
    }

    /// Whoever believes to hold does, for as long as it believes.
    pub(super) fn check_beliefs(&mut self) -> Check {
        let (mono, now) = (self.mono, self.micros());
        for host in &mut self.hosts {
            let moment = host.now(mono);
            let client = &mut host.client;
            let numbers: Vec<_> = client.permits.keys().copied().collect();
            for number in numbers {
                let left = client.left(number, moment);
                let permit = &client.permits[&number];
                let identity = &permit.identity;
                if permit.told > 1 {
                    return broken("loss is told", format!("of {} twice", identity.id));
                }
                if !permit.is_had || permit.is_excused || permit.seen_lost {
                    continue;
                }
                let mut gates = self.gates.iter();
                let gate = gates.find(|gate| gate.keys == identity.keys).unwrap();
                gate.check_belief(&identity.id, permit.least, identity.fence, left, now)?;
            }
        }
        Ok(())
    }

    /// Whoever waits knows this ticket, if the server has forgotten its place.
    pub(super) fn ticket_of(&self, name: usize, sent: &Sent, is_awaited: bool) -> Option<u64> {
        let Call::Acquire(ask) = sent.call() else {
            return None;
        };
        let gate = self.gate_of(sent)?;
        let model = &self.gates[gate].model;
        let is_queued = model.place(&ask.id).is_some() || model.holders.contains_key(&ask.id);
        if !is_awaited || is_queued || self.gates[gate].is_in_doubt() {
            return None;
        }
        self.hosts[name].ids.get(&(gate, ask.id))?.ticket
    }

    /// A waiter that the server forgot has its old place.
    pub(super) fn check_place(&self, sent: &Sent, before: Option<u64>, reply: &RedisResult<Value>) -> Check {
        if let (Some(ticket), Ok(words)) = (before, words_of(reply))
            && words[0] == "queued"
            && words[1] != ticket.to_string()
        {
            return broken("order", format!("{sent} had {ticket}, got {}", words[1]));
        }
        Ok(())
    }

    /// What a wait has its messages signed with.
    pub(super) fn note_secret(&mut self, name: usize, sent: &Sent) {
        if let Call::Acquire(ask) = sent.call()
            && let Some((_, secret)) = ask.inbox.split_once('#')
        {
            let (secret, secrets) = ((ask.id, secret.to_owned()), &mut self.hosts[name].secrets);
            if !secrets.contains(&secret) {
                secrets.push(secret);
            }
        }
    }

    /// A permit whose reply is lost comes back by itself.
    pub(super) fn check_asked(&self, sent: &Sent) -> Check {
        match sent.call() {
            Call::Acquire(ask) if ask.lease_ms == 0 => broken("lease", format!("{sent} would be held for ever")),
            _ => Ok(()),
        }
    }

    pub(super) fn gate_of(&self, sent: &Sent) -> Option<usize> {
        let mut gates = self.gates.iter();
        gates.position(|gate| gate.keys.names()[0] == sent.keys[0])
    }

    /// Whether the id has something, as far as that can be known.
    fn has_something(&self, gate: usize, id: &str) -> bool {
        let (gate, now) = (&self.gates[gate], self.now());
        let holder = gate.model.holders.get(id);
        let waiter = gate.model.queue.iter().find(|waiter| waiter.id == id);
        !gate.is_in_doubt()
            && (holder.is_some_and(|holder| holder.lives(now))
                || waiter.is_some_and(|waiter| waiter.patience_until > now))
    }

    /// A call of a client was carried out.
    pub(super) fn note_call(&mut self, name: usize, sent: &Sent, is_awaited: bool) {
        let (Some(gate), Some(id)) = (self.gate_of(sent), sent.arguments.first()) else {
            return;
        };
        let (has, acquires) = (self.has_something(gate, id), sent.acquires(id));
        let ids = &mut self.hosts[name].ids;
        if let Some(noted) = ids.get_mut(&(gate, id.clone())) {
            if !acquires {
                noted.is_released = true;
                noted.is_stray &= has;
                noted.is_late &= has;
            } else if !is_awaited && has {
                noted.is_stray = true;
                noted.is_late |= noted.is_released;
            }
        }
    }

    /// A message reaches its client, which has to release a grant of a wait that it gave up.
    pub(super) fn note_message(&mut self, name: usize, text: &str) {
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

    /// Something came of what a caller wanted.
    pub(super) fn take_outcome(&mut self, name: usize, outcome: Outcome) -> Check {
        let (keys, id, why, unknown) = match outcome {
            Outcome::Granted(number) => {
                let client = &self.hosts[name].client;
                let identity = client.permits[&number].identity.clone();
                let mut gates = self.gates.iter();
                let gate = gates.position(|gate| gate.keys == identity.keys).unwrap();
                let ids = &mut self.hosts[name].ids;
                if let Some(noted) = ids.get_mut(&(gate, identity.id.clone())) {
                    noted.ticket = None;
                }
                return Ok(());
            }
            Outcome::Opened { keys, begun } => {
                return match self.open_at.is_some_and(|at| at >= begun) {
                    true => Ok(()),
                    false => broken("latch", format!("{} was not open", keys.latch)),
                };
            }
            Outcome::Nothing { keys, id, why, unknown } => (keys, id, why, unknown),
        };
        let mut gates = self.gates.iter();
        let gate = gates.position(|gate| gate.keys == keys).unwrap();
        let key = (gate, id.clone());
        let host = &mut self.hosts[name];
        let is_revoked = host.ids.get(&key).is_some_and(|noted| noted.is_revoked);
        if why.starts_with("Revoked") && !is_revoked {
            return broken("revoked", format!("{id} was not revoked"));
        }
        // What another caller has is left to it.
        if !why.starts_with("AlreadyHeld") {
            host.promised.push(Promised { gate, id, since: self.mono, unknown });
        }
        Ok(())
    }

    /// Who was told to have nothing has nothing, once everything that may change this was carried out or is lost.
    pub(super) fn check_promised(&mut self, name: usize) -> Check {
        let promised = std::mem::take(&mut self.hosts[name].promised);
        for promised in promised {
            let Promised { gate, id, .. } = &promised;
            let (keys, client) = (&self.gates[*gate].keys, &self.hosts[name].client);
            let is_it = |sent: &Sent| sent.keys[0] == keys.names()[0] && sent.arguments.first() == Some(id);
            let mut pending = client.releases.pending.iter();
            let mut current = client.releases.current.iter();
            let mut calls = client.flights.iter().flat_map(|flight| &flight.calls);
            let is_open = pending.any(|pending| pending.keys == *keys && pending.id == *id)
                || current.any(|(other, current)| other == keys && current == id)
                || calls.any(is_it);
            let has = self.has_something(*gate, id);
            let is_old = self.mono - promised.since > RELEASED_FOR;
            let noted = self.hosts[name].ids.get(&(*gate, id.clone()));
            let ends_by_itself = noted.is_some_and(|noted| noted.is_late || noted.is_stray && !promised.unknown);
            if has && !is_open && !ends_by_itself && !is_old {
                let text = format!("{id} was told that it has nothing: {:?}", self.gates[*gate].model);
                return broken("nothing left behind", text);
            }
            let host = &mut self.hosts[name];
            match has || is_open {
                true => host.promised.push(promised),
                false => drop(host.ids.remove(&(*gate, id.clone()))),
            }
        }
        Ok(())
    }

    /// A caller begins to use an id.
    pub(super) fn note_id(&mut self, name: usize, gate: usize, id: &str) {
        let (key, has) = ((gate, id.to_owned()), self.has_something(gate, id));
        let may_be_of_copy = self.count.losses > 0 && (has || self.gates[gate].is_in_doubt());
        let host = &mut self.hosts[name];
        host.promised.retain(|promised| promised.gate != gate || promised.id != id);
        // What an earlier call or a copy left behind ends by itself.
        let is_stray = host.ids.get(&key).is_some_and(|before| before.is_stray || before.is_late);
        let is_late = may_be_of_copy || is_stray && has;
        host.ids.insert(key, Noted { is_late, ..Noted::default() });
    }

    pub(super) fn is_mutex(gate: usize) -> bool {
        MUTEXES.contains(&gate)
    }
}
