//! What each action does to a world.

use super::{MUTEXES, Mail, World};
use crate::action::Action;
use crate::client::{Call, Phase};
use crate::ledger::{Check, broken};
use crate::model::Ask;
use luagate_memory::Store;

impl World {
    /// Lets it happen.
    ///
    /// # Errors
    /// When a promise is broken by it.
    pub fn apply(&mut self, action: &Action) -> Check {
        let of = |number: usize, length: usize| number.checked_rem(length).unwrap_or(0);
        let clients = self.clients.len();
        match action {
            Action::Pass(ms) => self.pass(*ms),
            Action::Want {
                client,
                gate,
                permits,
                limit,
                lease_ms,
                wait_ms,
                inbox,
            } => {
                let ask = Ask {
                    id: String::new(),
                    permits: *permits,
                    limit: *limit,
                    lease_ms: (*lease_ms).max(1),
                    wait_ms: *wait_ms,
                    inbox: String::new(),
                    ticket: 0,
                };
                let gate = of(*gate, self.gates.len());
                self.want(of(*client, clients), gate, ask, *inbox);
                Ok(())
            }
            Action::Act { client } => {
                let client = of(*client, clients);
                self.act(client)
            }
            Action::Refresh { client, lease_ms } => {
                let client = of(*client, clients);
                self.refresh(client, *lease_ms);
                Ok(())
            }
            Action::Leave { client, keep } => {
                let client = &mut self.clients[of(*client, clients)];
                if let Phase::Holding { permits, .. } = client.phase {
                    let keep = (*keep).min(permits.saturating_sub(1));
                    (client.phase, client.awaits) = (Phase::Leaving { keep }, None);
                } else if matches!(client.phase, Phase::Asking { .. }) {
                    (client.phase, client.awaits) = (Phase::Leaving { keep: 0 }, None);
                }
                Ok(())
            }
            Action::Arrive { flight } if *flight < self.flights.len() => self.arrive(*flight),
            Action::Return { flight } if *flight < self.flights.len() => {
                self.come_back(*flight);
                Ok(())
            }
            Action::Prompt { flight } if *flight < self.flights.len() => {
                self.arrive(*flight)?;
                self.come_back(*flight);
                Ok(())
            }
            Action::Lose { flight } if *flight < self.flights.len() => {
                let flight = self.flights.remove(*flight);
                let what = if flight.reply.is_some() {
                    "answer to"
                } else {
                    "call of"
                };
                self.tell(|| format!("the {what} c{} is lost", flight.client));
                Ok(())
            }
            Action::Read { mail } if *mail < self.mail.len() => {
                let mail = self.mail.remove(*mail);
                let mono = self.mono;
                let client = &mut self.clients[mail.client];
                if client.hears {
                    client.read(&mail.text, mono);
                    if let Phase::Holding { excused, .. } = &mut client.phase {
                        *excused |= self.stepped[mail.client];
                    }
                    self.tell(|| format!("c{} reads: {}", mail.client, mail.text));
                }
                self.check_beliefs()
            }
            Action::LoseMail { mail } if *mail < self.mail.len() => {
                let mail = self.mail.remove(*mail);
                self.tell(|| format!("lost on its way to c{}: {}", mail.client, mail.text));
                Ok(())
            }
            Action::Duplicate { mail } if *mail < self.mail.len() => {
                let Mail { client, text } = &self.mail[*mail];
                let (client, text) = (*client, text.clone());
                self.mail.push(Mail { client, text });
                Ok(())
            }
            Action::LastWord { client } => {
                let (client, mono) = (&mut self.clients[of(*client, clients)], self.mono);
                if let Phase::Asking { ask, next, .. } = &mut client.phase {
                    (ask.wait_ms, *next, client.awaits) = (0, Some(mono), None);
                }
                Ok(())
            }
            Action::Crowd {
                gate,
                count,
                lease_ms,
                wait_ms,
            } => {
                let gate = of(*gate, self.gates.len());
                for number in 0..*count {
                    let ask = Ask {
                        id: format!("crowd/{}/{number}", self.calls),
                        permits: Some(1),
                        limit: if MUTEXES.contains(&gate) { 1 } else { 120 },
                        lease_ms: (*lease_ms).max(1),
                        wait_ms: *wait_ms,
                        inbox: "luagate:inbox:nobody".to_owned(),
                        ticket: 0,
                    };
                    self.run(gate, &Call::Acquire(ask)).map(drop)?;
                }
                self.calls += 1;
                Ok(())
            }
            Action::Die { client } => {
                let client = of(*client, clients);
                (self.clients[client].phase, self.clients[client].hears) = (Phase::Dead, false);
                self.listen(client, false);
                self.tell(|| format!("c{client} dies"));
                Ok(())
            }
            Action::Born { client } => {
                let client = of(*client, clients);
                if !self.clients[client].is_alive() {
                    self.clients[client].revive();
                    self.listen(client, true);
                }
                Ok(())
            }
            Action::Drop { client, noticed } => {
                let client = of(*client, clients);
                self.clients[client].hears = false;
                if *noticed {
                    self.listen(client, false);
                }
                self.tell(|| format!("the subscription of c{client} drops"));
                Ok(())
            }
            Action::Subscribe { client } => {
                let client = of(*client, clients);
                let mono = self.mono;
                let other = &mut self.clients[client];
                if other.is_alive() && !other.hears {
                    other.hears = true;
                    if let Phase::Asking {
                        next: Some(next), ..
                    } = &mut other.phase
                    {
                        *next = mono; // what came in between was missed
                    }
                    self.listen(client, true);
                    self.tell(|| format!("c{client} subscribes again"));
                }
                Ok(())
            }
            Action::Lookup { gate, client } => {
                let id = self.clients[of(*client, clients)].id.clone();
                if id.is_empty() {
                    return Ok(());
                }
                self.run(of(*gate, self.gates.len()), &Call::Lookup { id })
                    .map(drop)
            }
            Action::Stale {
                gate,
                client,
                refresh,
            } => {
                let id = self.clients[of(*client, clients)].id.clone();
                let gate = of(*gate, self.gates.len());
                let model = &self.gates[gate].model;
                let holder = model.holders.get(&id).map(|holder| holder.fence);
                let ticket = model.place(&id).map(|place| model.queue[place].ticket);
                let Some(fence) = holder.or(ticket).map(|fence| fence - 1) else {
                    return Ok(());
                };
                let (keep, lease_ms) = (0, 1);
                let call = match refresh {
                    true => Call::Refresh {
                        id,
                        lease_ms,
                        fence,
                    },
                    false => Call::Release { id, keep, fence },
                };
                self.run(gate, &call).map(drop)
            }
            Action::Inspect { gate } => {
                let gate = of(*gate, self.gates.len());
                self.run(gate, &Call::Inspect).map(drop)
            }
            Action::Resize {
                gate,
                limit,
                expected,
            } => {
                let call = Call::Resize {
                    limit: *limit,
                    expected: *expected,
                };
                match of(*gate, self.gates.len()) {
                    gate if MUTEXES.contains(&gate) => Ok(()),
                    gate => self.run(gate, &call).map(drop),
                }
            }
            Action::LockAll { name, lease_ms } => {
                let (id, lease_ms) = (format!("all/{}", name % 2), (*lease_ms).max(1));
                self.run(MUTEXES.start, &Call::LockAll { id, lease_ms })
                    .map(drop)
            }
            Action::FreeAll { name } => {
                for gate in MUTEXES {
                    let id = format!("all/{}", name % 2);
                    let (keep, fence) = (0, 0);
                    let release = Call::Release { id, keep, fence };
                    self.run(gate, &release).map(drop)?;
                }
                Ok(())
            }
            Action::Full(full) => {
                self.full = *full;
                self.server.set_full(*full);
                self.tell(|| format!("memory is full: {full}"));
                Ok(())
            }
            Action::Flush => {
                let flushed = redis::cmd("SCRIPT").arg("FLUSH").exec(&mut self.server);
                flushed.map_err(|error| broken::<()>("server", error.to_string()).unwrap_err())?;
                self.loaded = self
                    .scripts
                    .load(&mut self.server)
                    .unwrap_or_else(|_| self.loaded.clone());
                Ok(())
            }
            Action::Step(ms) => {
                let now = self.now();
                self.gates.iter_mut().for_each(|gate| gate.clock_steps(now));
                self.ahead = self.ahead.saturating_add_signed(ms * 1_000);
                self.excuse();
                self.stepped.fill(true);
                self.tell(|| format!("the server's clock steps by {ms} ms"));
                self.time_passes()
            }
            Action::Backup => {
                if self.gates.iter().all(|gate| !gate.is_in_doubt()) {
                    self.backup = Some((self.server.store(), self.gates.clone()));
                    self.tell(|| "a copy of all keys is made".to_owned());
                }
                Ok(())
            }
            Action::Restart { empty } => self.restart(*empty),
            Action::Evict { gate, key } => {
                let empty = Store::default();
                self.replace_key(of(*gate, self.gates.len()), key % 3, &empty)
            }
            Action::Restore { gate, key } => match &self.backup {
                Some((store, _)) => {
                    let store = store.clone();
                    self.replace_key(of(*gate, self.gates.len()), key % 3, &store)
                }
                None => Ok(()),
            },
            Action::Calm => {
                self.calm_since = self.calm_since.or(Some(self.mono));
                Ok(())
            }
            Action::End => self.end(),
            _ => Ok(()),
        }
    }

    fn pass(&mut self, ms: u64) -> Check {
        if !self.is_prompt(self.mono + ms * 1_000) {
            self.waits.fill(None);
        }
        self.mono += ms * 1_000;
        self.time_passes()?;
        self.tell(|| format!("{ms} ms go by"));
        self.check_beliefs()?;
        self.check_liveness()
    }

    /// An idle client begins to ask: for one permit where the gate is a mutex.
    fn want(&mut self, client: usize, gate: usize, mut ask: Ask, inbox: bool) {
        let mono = self.mono;
        let client = &mut self.clients[client];
        if client.phase != Phase::Idle {
            return;
        }
        client.count += 1;
        // Some have an id of their own, which is safe to use again once nothing of before is on its way.
        let mut flights = self.flights.iter();
        let is_own =
            client.name.is_multiple_of(3) && !flights.any(|flight| flight.client == client.name);
        let number = if is_own { 0 } else { client.count };
        client.id = format!("c{}/{number}", client.name);
        (client.gate, client.awaits) = (gate, None);
        ask.id = client.id.clone();
        if MUTEXES.contains(&gate) {
            (ask.permits, ask.limit) = (Some(1), 1);
        }
        if inbox {
            ask.inbox = client.address();
        }
        client.phase = Phase::Asking {
            gives_up: mono + 3 * ask.wait_ms * 1_000 + 1_000_000,
            ask,
            next: None,
            answered: None,
        };
    }

    /// What a client holds may be lost from here on without a word.
    fn excuse(&mut self) {
        for client in &mut self.clients {
            if let Phase::Holding { excused, .. } = &mut client.phase {
                *excused = true;
            }
        }
        self.mail.clear();
        for flight in &mut self.flights {
            if flight.reply.take().is_some() {
                flight.client = usize::MAX; // nobody hears it
            }
        }
        self.flights.retain(|flight| flight.client != usize::MAX);
    }

    fn restart(&mut self, empty: bool) -> Check {
        let (store, older) = match &self.backup {
            Some((store, gates)) if !empty => (store.clone(), Some(gates.clone())),
            _ => (Store::default(), None),
        };
        self.server.set_store(store);
        self.set_clock();
        for (place, gate) in self.gates.iter_mut().enumerate() {
            gate.come_back(older.as_ref().map(|gates| &gates[place]));
        }
        for client in 0..self.clients.len() {
            self.clients[client].hears = false;
            self.listen(client, false);
        }
        self.excuse();
        self.count.losses += 1;
        self.tell(|| {
            format!(
                "the server restarts, {}",
                if older.is_none() {
                    "empty"
                } else {
                    "with the copy"
                }
            )
        });
        self.time_passes()
    }

    fn replace_key(&mut self, gate: usize, key: usize, by: &Store) -> Check {
        if self.gates[gate].replace_key(&mut self.server, key, by) {
            self.excuse();
            self.count.losses += 1;
            self.tell(|| format!("key {key} of {gate} is evicted or put back"));
        }
        Ok(())
    }
}
