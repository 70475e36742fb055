//! Promises that must hold in a world at every moment, in addition to the checks of each reply.

pub(super) mod calls;
pub(super) mod ids;

use super::{Host, World};
use crate::call::{Call, Sent};
use crate::client::waits::Caller;
use crate::client::{Patience, Thread, Want, micros};
use crate::ledger::{Check, broken};
use crate::model::{Ask, AskOne, Waiter, channel};
use crate::protocol::exchange::RawReply;
use crate::scripts::words_of;
use std::time::Duration;

/// How soon something must happen if nothing delays it, in µs.
const SOON: u64 = 50_000;

impl World {
    /// The threads that have something to do.
    pub fn due(&self) -> impl Iterator<Item = (usize, Thread)> {
        let hosts = self.hosts.iter().enumerate();
        let awake = hosts.filter(|(_, host)| !host.is_suspended);
        awake.flat_map(|(name, host)| {
            let now = host.now(self.mono).instant();
            let plans = host.client.plans();
            plans.filter_map(move |(thread, at)| (at <= now).then_some((name, thread)))
        })
    }

    /// Whether everything due until then, or up to 1 ms before, was done, and nothing is on its way.
    pub fn is_prompt(&self, until: u64) -> bool {
        let is_later = self.hosts.iter().all(|host| {
            let mut plans = host.client.plans();
            !host.is_suspended && plans.all(|(_, at)| micros(at) + host.behind + 1_000 > until)
        });
        is_later && self.due().next().is_none() && self.flight_count() == 0 && self.mails() == 0
    }

    /// All callers.
    fn waiting(&self) -> impl Iterator<Item = (&Host, &Caller)> {
        self.hosts.iter().flat_map(|host| {
            let callers = host.client.callers.values();
            callers.map(move |caller| (host, caller))
        })
    }

    /// Invariant 10: the first live waiter that could have the free permits is served within 50 ms. For each
    /// dead waiter ahead of it, now or when it last asked or since, it may take 1 s longer.
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
                let in_use = gate.in_use(now);
                // A waiter without an inbox, or one without a subscription whose process is alive, may ask
                // again until its deadline on the server. Free permits are reserved for it.
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
            // The same id may have been served and have joined the line again.
            let waits = (waiter.id.clone(), waiter.ticket);
            let since = match &self.waits[place] {
                Some((same, since)) if *same == waits => *since,
                _ => self.mono,
            };
            // It knows the number of waiters that were ahead when it last asked. One that was overtaken asks
            // within a second.
            let position = waiting.waiter.target.entry.position.saturating_sub(1);
            let position = position.max(self.overtaken[place].contains(&waiter.id).into());
            let bound = SOON + 1_000_000 * position.max(first as u64).min(5);
            if self.mono > since + bound {
                let id = &waiter.id;
                let text = format!(
                    "{id} could have been served since {since} µs, at place {first}: {:?}",
                    gate.model
                );
                return broken("wake-up", text);
            }
            self.waits[place] = Some((waits, since));
        }
        self.check_times()
    }

    /// After an acquire: a waiter that was the first may not know yet that it is the second one.
    pub(super) fn note_overtaken(&mut self, gate: usize, caller: &str) {
        let (overtaken, mut queue) = (&mut self.overtaken[gate], self.gates[gate].model.queue.iter());
        overtaken.remove(caller);
        if queue.next().is_some_and(|first| first.id == caller) {
            overtaken.extend(queue.next().map(|second| second.id.clone()));
        }
    }

    /// After a call: a waiter whose permits are in use again was not forgotten. A caller that comes before it
    /// has them.
    pub(super) fn excuse_waits(&mut self) {
        let now = self.now();
        for (gate, waits) in self.gates.iter().zip(&mut self.waits) {
            let is_it = |waiter: &&Waiter| waits.as_ref().is_some_and(|((id, _), _)| *id == waiter.id);
            let waiter = gate.model.queue.iter().find(is_it);
            if waiter.is_some_and(|waiter| gate.in_use(now) + waiter.permits > gate.model.limit) {
                *waits = None;
            }
        }
    }

    /// Whether the process with this inbox has ended.
    fn is_dead(&self, inbox: &str) -> bool {
        let mut clients = self.hosts.iter().map(|host| &host.client);
        !clients.any(|client| client.is_alive && client.channel == channel(inbox))
    }

    /// Checks that timeouts, opened latches, renewals and loss reports are all in time.
    fn check_times(&self) -> Check {
        for host in &self.hosts {
            let client = &host.client;
            let (now, mono) = (host.now(self.mono).instant(), self.mono);
            for caller in client.callers.values() {
                let (since, patience, what) = match caller {
                    Caller::Waits(waiting, want) | Caller::GivesBack { waiting, want, .. } => {
                        (waiting.since, want.patience, want.id.as_str())
                    }
                    Caller::Watches { waiting, keys, patience, .. } => {
                        let opened = self.open_since.unwrap_or(mono);
                        let begun = micros(waiting.since) + host.behind;
                        let hears = client.is_up && client.hears && client.listens;
                        let late = mono - opened.max(begun);
                        if hears && self.latch.is_open() && late > SOON + 10_000 * waiting.asks {
                            return broken(
                                "wake-up",
                                format!("{} is open, but the waiter does not know", keys.list()[0]),
                            );
                        }
                        (waiting.since, *patience, keys.list()[0])
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
                let is_long = left >= Duration::from_millis(20) && permit.excused_at.is_none();
                if permit.identity.lease.renewed && is_long && passed > left / 2 {
                    let text = format!("{} is not renewed: {permit:?}", permit.identity.id);
                    return broken("renewal", text);
                }
                if permit.on_lost && permit.reported == 0 && passed > left + Duration::from_micros(SOON) {
                    let text = format!("the loss of {} is not reported", permit.identity.id);
                    return broken("loss report", text);
                }
            }
        }
        Ok(())
    }

    /// Invariant 6: nothing is left except what must stay.
    pub(super) fn end(&mut self) -> Check {
        for place in 0..self.gates.len() {
            let gate = &self.gates[place];
            let stays = gate.model.pinned || gate.model.holders.values().any(|holder| holder.ends.is_none());
            let over = self.now() > gate.ledger.latest + 62_000;
            if over && !stays && !gate.is_in_doubt() && gate.is_there(&mut self.server) {
                let keys = self.gates[place].keys.list();
                return broken("nothing left behind", format!("{keys:?} still exists"));
            }
        }
        Ok(())
    }

    /// Checks that a client which believes that it holds a permit does hold it, for that long.
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
                if permit.reported > 1 {
                    return broken("loss report", format!("the loss of {} is reported twice", identity.id));
                }
                if !permit.is_had || permit.excused_at.is_some() || permit.seen_lost {
                    continue;
                }
                let mut gates = self.gates.iter();
                let gate = gates.find(|gate| gate.keys == identity.keys).unwrap();
                gate.check_belief(&identity.id, permit.least, identity.fence, left, now)?;
            }
        }
        Ok(())
    }

    /// The ticket of a waiter whose place the server has forgotten. `None` also if the server's clock is too
    /// far behind it.
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
        let ticket = self.hosts[name].ids.get(&(gate, ask.id))?.ticket;
        ticket.filter(|ticket| *ticket <= model.highest_ticket(self.micros()))
    }

    /// Checks that a waiter which the server had forgotten gets its old place.
    pub(super) fn check_place(&self, sent: &Sent, before: Option<u64>, reply: &RawReply) -> Check {
        if let (Some(ticket), Ok(words)) = (before, words_of(reply))
            && words[0] == "queued"
            && words[1] != ticket.to_string()
        {
            return broken("order", format!("{sent} had {ticket}, got {}", words[1]));
        }
        Ok(())
    }

    /// Notes the secret with which messages to a wait are signed.
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

    /// Checks that a call asks for what its caller wants, with a lease that ends: a permit whose reply is
    /// lost must expire.
    pub(super) fn check_asked(&self, name: usize, sent: &Sent, is_awaited: bool) -> Check {
        let (id, asked) = match sent.call() {
            Call::Acquire(ask) => {
                let Ask { permits, limit, lease_ms, at_least_ms, .. } = ask;
                let line = Some((ask.max_waiting, ask.head_start_ms));
                (ask.id, vec![(permits, limit, lease_ms, at_least_ms, line)])
            }
            Call::TryAll { id, asked } => {
                let one = |ask: AskOne| (Some(ask.permits), ask.limit, ask.lease_ms, ask.at_least_ms, None);
                (id, asked.into_iter().map(one).collect())
            }
            _ => return Ok(()),
        };
        let callers = self.hosts[name].client.callers.values();
        let is_it = |want: &&Want| want.id == id && sent.is_on(want.keys.list()[0]);
        let wants: Vec<_> = callers.flat_map(Caller::wants).filter(is_it).collect();
        let fits = !is_awaited
            || wants.len() == asked.len()
                && wants.iter().zip(&asked).all(|(want, (permits, limit, _, at_least_ms, line))| {
                    let bound =
                        line.is_none_or(|line| line == (u64::from(want.max_waiting), want.head_start_ms));
                    let is_same = (want.permits, want.limit) == (*permits, *limit);
                    is_same && bound && want.lease.at_least_ms == *at_least_ms
                });
        if !fits {
            return broken("asked", format!("{sent} does not match what the caller wants: {wants:?}"));
        }
        if asked.iter().all(|(_, _, lease_ms, ..)| *lease_ms > 0) {
            Ok(())
        } else {
            broken("lease", format!("{sent} asks for a lease without an end"))
        }
    }

    pub(super) fn gate_of(&self, sent: &Sent) -> Option<usize> {
        let mut gates = self.gates.iter();
        gates.position(|gate| gate.keys.list()[0] == sent.keys[0])
    }
}
