//! Requests by threads of clients, and their use of permits.

use super::{COUNT, LIFE_MS, of};
use crate::action::Action;
use crate::client::waits::Caller;
use crate::client::{Client, Patience, Want};
use crate::ledger::Check;
use crate::protocol::keeper::Number;
use crate::protocol::keys::Keys;
use crate::protocol::lease::LeaseOptions;
use crate::world::{Host, World};

impl World {
    pub(super) fn let_caller(&mut self, action: &Action) -> Check {
        let clients = self.hosts.len();
        let mono = self.mono;
        let name = match action {
            Action::Want { client, .. } => {
                let name = of(*client, clients);
                self.want(name, action);
                name
            }
            Action::WantAll { client, .. } => {
                let name = of(*client, clients);
                self.want_all(name, action);
                name
            }
            Action::Watch { client, wait_ms } => {
                let name = of(*client, clients);
                if self.hosts[name].client.is_alive {
                    let keys = self.latch.keys.clone();
                    self.tell(|| format!("c{name} waits for {} for {wait_ms:?} ms", keys.list()[0]));
                    self.with(name, |client, now| {
                        client.watch(&keys, COUNT, LIFE_MS, *wait_ms, mono, now);
                    });
                }
                name
            }
            Action::Cancel { client, caller } => {
                let name = of(*client, clients);
                self.with(name, |client, now| {
                    let at = of(*caller, client.callers.len());
                    if let Some(caller) = client.callers.values_mut().nth(at) {
                        caller.cancel(now);
                    }
                });
                self.tell(|| format!("a wait of c{name} is cancelled"));
                name
            }
            _ => return Ok(()),
        };
        self.look_after(name)
    }

    /// A thread asks for permits.
    fn want(&mut self, name: usize, action: &Action) {
        let Action::Want {
            gate,
            permits,
            limit,
            strict,
            lease_ms,
            renewed,
            own_id,
            on_lost,
            patience,
            max_waiting,
            head_start_ms,
            at_least_ms,
            ..
        } = action
        else {
            return;
        };
        let gate = of(*gate, self.gates.len());
        let Host { client, .. } = &mut self.hosts[name];
        let keys = self.gates[gate].keys.clone();
        let own = ["own", "own2"].map(|own| format!("c{name}/{own}"));
        let own = own.into_iter().find(|own| *own_id && may_use(client, &keys, own));
        let own_id = own.is_some();
        let id = own.unwrap_or_else(|| format!("c{name}/{}", client.next_number()));
        let is_mutex = World::is_mutex(gate);
        let permits = match patience {
            Patience::None => *permits,
            _ => permits.or(Some(1)),
        };
        let renewed = *renewed && *lease_ms >= 30;
        let lease = LeaseOptions { lease_ms: *lease_ms, renewed, own_id, at_least_ms: *at_least_ms };
        let want = Want {
            keys,
            id,
            permits: if is_mutex { Some(1) } else { permits },
            limit: if is_mutex { 1 } else { *limit },
            strict: *strict,
            max_waiting: *max_waiting,
            head_start_ms: *head_start_ms,
            lease,
            patience: *patience,
            on_lost: *on_lost,
        };
        if client.is_alive {
            self.begin_want(name, want);
        }
    }

    pub(super) fn begin_want(&mut self, name: usize, want: Want) {
        self.tell(|| format!("c{name} wants {want}"));
        let gate = self.gates.iter().position(|gate| gate.keys == want.keys);
        self.note_id(name, gate.unwrap_or(0), &want.id);
        self.with(name, |client, now| client.want(want, now));
    }

    pub(super) fn let_holder(&mut self, name: usize, permit: usize, action: &Action) -> Check {
        let permits = self.hosts[name].client.permits.iter();
        let had = permits.filter(|(_, permit)| permit.is_had);
        let had: Vec<Number> = had.map(|(number, _)| *number).collect();
        let Some(&number) = had.get(of(permit, had.len())) else {
            return Ok(());
        };
        let id = self.hosts[name].client.permits[&number].identity.id.clone();
        self.tell(|| format!("c{name} {id}: {action:?}"));
        self.with(name, |client, now| match action {
            Action::Look { .. } => drop(client.look(number, now)),
            Action::Refresh { lease_ms, .. } => client.refresh(number, *lease_ms, now),
            Action::Keep { keep, .. } => {
                if *keep > 0 && *keep <= client.permits[&number].least {
                    client.keep_less(number, *keep, now);
                }
            }
            _ => client.drop_permit(number, now),
        });
        self.look_after(name)
    }

    /// A client tries for many permits at once, and gets each reply at once.
    pub(super) fn collect(&mut self, name: usize, action: &Action) -> Check {
        let Action::Collect { count, lease_ms, at_least_ms, .. } = *action else {
            return Ok(());
        };
        if !self.hosts[name].client.is_alive {
            return Ok(());
        }
        for _ in 0..count {
            let id = self.hosts[name].client.next_number();
            let want = Want {
                keys: self.gates[0].keys.clone(),
                id: format!("c{name}/{id}"),
                permits: Some(1),
                limit: 220,
                strict: false,
                max_waiting: 0,
                head_start_ms: 0,
                lease: LeaseOptions {
                    lease_ms: lease_ms.max(400),
                    renewed: true,
                    own_id: false,
                    at_least_ms,
                },
                patience: Patience::None,
                on_lost: true,
            };
            let id = want.id.clone();
            self.note_id(name, 0, &id);
            self.with(name, |client, now| client.want(want, now));
            let flight = self.hosts[name].client.flights.last();
            if let Some(number) = flight.map(|flight| flight.number) {
                self.arrive(name, number)?;
                self.come_back(name, number)?;
            }
        }
        Ok(())
    }
}

/// Whether a caller may use this fixed id: no other caller uses it, or waits until it is released. No call
/// with it can still run on a connection that is closed, since the client cannot know of that.
fn may_use(client: &Client, keys: &Keys, id: &str) -> bool {
    let is_used = |other: &Keys, used: &str| other == keys && used == id;
    let mut held = client.permits.values().filter(|permit| !permit.is_posted).map(|permit| &permit.identity);
    let mut callers = client.callers.values().filter_map(Caller::want);
    let mut lost = client.flights.iter().filter(|flight| {
        let mut calls = flight.calls.iter();
        client.is_closed(flight.connection)
            && calls.any(|call| call.keys[0] == keys.list()[0] && call.acquires(id))
    });
    lost.next().is_none()
        && !held.any(|identity| is_used(&identity.keys, &identity.id))
        && !callers.any(|want| is_used(&want.keys, &want.id))
}
