//! What each action does to a world.

use super::{Backup, Host, MUTEXES, World};
use crate::action::{Action, Forgery, Lie, Refusal, Signature};
use crate::client::waits::Caller;
use crate::client::{Client, Patience, Thread, Want};
use crate::error::failure::FailureKind;
use crate::ledger::{Check, broken};
use crate::model::signed;
use crate::protocol::keeper::Number;
use crate::protocol::keys::Keys;
use crate::protocol::latch::{Count, CountDown, Delete};
use crate::protocol::lease::LeaseOptions;
use crate::protocol::semaphore::{Acquire, Ask, Inspect, Lookup, Refresh, Release, Resize, TryLockAll};
use luagate_memory::Store;

/// How many have to count down, and how long the latch is kept.
const COUNT: u32 = 2;
const LIFE_MS: u64 = 20_000;

/// One of several, by its number.
fn of(number: usize, length: usize) -> usize {
    number.checked_rem(length).unwrap_or(0)
}

impl World {
    /// Lets it happen.
    ///
    /// # Errors
    /// When a promise is broken by it.
    pub fn apply(&mut self, action: &Action) -> Check {
        let clients = self.hosts.len();
        match action {
            Action::Pass(ms) => self.pass(*ms),
            Action::Act { client, thread } => {
                let client = of(*client, clients);
                let due = self.due().filter(|(name, _)| *name == client);
                let due: Vec<Thread> = due.map(|(_, thread)| thread).collect();
                match due.get(of(*thread, due.len())) {
                    Some(thread) => self.let_act(client, *thread),
                    None => Ok(()),
                }
            }
            Action::Want { .. } | Action::Watch { .. } | Action::Cancel { .. } => self.let_caller(action),
            Action::Look { client, permit }
            | Action::Refresh { client, permit, .. }
            | Action::Keep { client, permit, .. }
            | Action::DropPermit { client, permit } => self.let_holder(of(*client, clients), *permit, action),
            Action::Collect { client, count, lease_ms } => self.collect(of(*client, clients), *count, *lease_ms),
            Action::Arrive { flight }
            | Action::Return { flight }
            | Action::Prompt { flight }
            | Action::Break { flight, .. }
            | Action::GiveUp { flight, .. }
            | Action::Refuse { flight, .. }
            | Action::Lose { flight } => {
                let flight = self.flights().nth(*flight);
                match flight {
                    Some((name, number)) => self.let_fly(name, number, action),
                    None => Ok(()),
                }
            }
            Action::Read { mail } | Action::LoseMail { mail } | Action::Duplicate { mail } => match self.mail(*mail) {
                Some((name, at)) => self.let_mail(name, at, action),
                None => Ok(()),
            },
            Action::Forge { client, caller, forgery } => {
                self.forge(of(*client, clients), *caller, *forgery);
                Ok(())
            }
            Action::Die { .. }
            | Action::Born { .. }
            | Action::Drop { .. }
            | Action::Subscribe { .. }
            | Action::Suspend { .. }
            | Action::Resume { .. }
            | Action::StepWall { .. } => self.let_process(action),
            Action::Crowd { gate, count, lease_ms, wait_ms } => {
                self.crowd(of(*gate, self.gates.len()), *count, *lease_ms, *wait_ms)
            }
            Action::Lookup { gate, client } => {
                let gate = of(*gate, self.gates.len());
                let Some(id) = self.id_of(of(*client, clients), gate) else {
                    return Ok(());
                };
                let keys = &self.gates[gate].keys.clone();
                self.call(&Lookup { keys, id: &id }).map(drop)
            }
            Action::Stale { gate, client, refresh } => {
                self.stale(of(*gate, self.gates.len()), of(*client, clients), *refresh)
            }
            Action::Revoke { gate, client } => self.revoke(of(*gate, self.gates.len()), of(*client, clients)),
            Action::Inspect { gate } => {
                let keys = &self.gates[of(*gate, self.gates.len())].keys.clone();
                let (offset, count) = (0, 1_000);
                let inspect = Inspect { keys, offset, count };
                self.call(&inspect).map(drop)
            }
            Action::Resize { gate, limit, expected } => match of(*gate, self.gates.len()) {
                gate if World::is_mutex(gate) => Ok(()),
                gate => {
                    let keys = &self.gates[gate].keys.clone();
                    let (limit, expected) = (*limit, *expected);
                    let resize = Resize { keys, limit, expected };
                    self.call(&resize).map(drop)
                }
            },
            Action::LockAll { name, lease_ms } => {
                let id = &format!("all/{}", name % 2);
                let gates = self.gates[MUTEXES].iter();
                let keys: Vec<Keys> = gates.map(|gate| gate.keys.clone()).collect();
                let lock_all =
                    TryLockAll { mutexes: &keys.iter().collect::<Vec<_>>(), id, lease_ms: (*lease_ms).max(1) };
                self.call(&lock_all).map(drop)
            }
            Action::FreeAll { name } => {
                let id = &format!("all/{}", name % 2);
                for gate in MUTEXES {
                    let keys = &self.gates[gate].keys.clone();
                    self.call(&release(keys, id, None))?;
                }
                Ok(())
            }
            Action::CountDown { name } => {
                let keys = &self.latch.keys.clone();
                let count_down = CountDown { keys, id: &format!("part-{}", name % 3), count: COUNT, life_ms: LIFE_MS };
                self.call(&count_down).map(drop)
            }
            Action::Count => {
                let keys = &self.latch.keys.clone();
                self.call(&Count { keys }).map(drop)
            }
            Action::DeleteLatch => {
                let keys = &self.latch.keys.clone();
                self.call(&Delete { keys }).map(drop)
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
                self.loaded = self.scripts.load(&mut self.server).unwrap_or_else(|_| self.loaded.clone());
                Ok(())
            }
            Action::Step(ms) => {
                let now = self.now();
                self.gates.iter_mut().for_each(|gate| gate.clock_steps(now));
                self.ahead = self.ahead.saturating_add_signed(ms * 1_000);
                self.excuse()?;
                self.tell(|| format!("the server's clock steps by {ms} ms"));
                self.time_passes()
            }
            Action::Backup => {
                if self.gates.iter().all(|gate| !gate.is_in_doubt()) {
                    self.backup = Some(Backup {
                        store: self.server.store(),
                        gates: self.gates.clone(),
                        latch: self.latch.clone(),
                    });
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
                Some(backup) => {
                    let store = backup.store.clone();
                    self.replace_key(of(*gate, self.gates.len()), key % 3, &store)
                }
                None => Ok(()),
            },
            Action::Calm => {
                if self.calm_since.is_none() {
                    self.begin_calm();
                }
                let is_first = self.count.scripts == 0;
                self.hosts.iter_mut().for_each(|host| host.client.is_calm |= is_first);
                Ok(())
            }
            Action::End => self.end(),
        }
    }

    fn begin_calm(&mut self) {
        self.calm_since = Some(self.mono);
        for host in &mut self.hosts {
            host.calm_since = Some(host.now(self.mono).instant());
        }
    }

    fn pass(&mut self, ms: u64) -> Check {
        let is_prompt = self.is_prompt(self.mono + ms * 1_000);
        self.advance(ms * 1_000)?;
        if !is_prompt {
            self.waits.fill(None);
            if self.calm_since.is_some() {
                self.begin_calm();
            }
            self.hosts.iter_mut().for_each(|host| host.client.is_calm = false);
        }
        self.tell(|| format!("{ms} ms go by"));
        self.check_beliefs()?;
        self.check_liveness()
    }

    /// What a client does, by its clocks.
    fn with<T>(&mut self, name: usize, work: impl FnOnce(&mut Client, crate::protocol::lease::Moment) -> T) -> T {
        let host = &mut self.hosts[name];
        let now = host.now(self.mono);
        work(&mut host.client, now)
    }

    pub(super) fn let_act(&mut self, name: usize, thread: Thread) -> Check {
        self.tell(|| format!("c{name} goes on: {thread:?}"));
        self.with(name, |client, now| client.act(thread, now));
        self.look_after(name)
    }

    fn let_caller(&mut self, action: &Action) -> Check {
        let clients = self.hosts.len();
        let mono = self.mono;
        let name = match action {
            Action::Want { client, gate, permits, limit, strict, lease_ms, renewed, own_id, on_lost, patience } => {
                let (name, gate) = (of(*client, clients), of(*gate, self.gates.len()));
                let Host { client, .. } = &mut self.hosts[name];
                let own = format!("c{name}/own");
                let keys = self.gates[gate].keys.clone();
                let own_id = *own_id && may_use(client, &keys, &own);
                let id = match own_id {
                    true => own,
                    false => format!("c{name}/{}", client.next_number()),
                };
                let is_mutex = World::is_mutex(gate);
                let permits = match patience {
                    Patience::None => *permits,
                    _ => permits.or(Some(1)),
                };
                let lease = LeaseOptions { lease_ms: *lease_ms, renewed: *renewed && *lease_ms >= 30, own_id };
                let want = Want {
                    keys,
                    id,
                    permits: if is_mutex { Some(1) } else { permits },
                    limit: if is_mutex { 1 } else { *limit },
                    strict: *strict,
                    lease,
                    patience: *patience,
                    on_lost: *on_lost,
                };
                if client.is_alive {
                    self.tell(|| format!("c{name} wants {want}"));
                    let id = want.id.clone();
                    self.note_id(name, gate, &id);
                    self.with(name, |client, now| client.want(want, now));
                }
                name
            }
            Action::Watch { client, wait_ms } => {
                let name = of(*client, clients);
                if self.hosts[name].client.is_alive {
                    let keys = self.latch.keys.clone();
                    self.tell(|| format!("c{name} waits for {} for {wait_ms:?} ms", keys.latch));
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

    fn let_holder(&mut self, name: usize, permit: usize, action: &Action) -> Check {
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
                if *keep > 0 && *keep < client.permits[&number].least {
                    client.keep_less(number, *keep, now);
                }
            }
            _ => client.drop_permit(number, now),
        });
        self.look_after(name)
    }

    /// A client tries for many permits at once, and is answered at once.
    fn collect(&mut self, name: usize, count: usize, lease_ms: u64) -> Check {
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
                lease: LeaseOptions { lease_ms: lease_ms.max(400), renewed: true, own_id: false },
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

    fn let_fly(&mut self, name: usize, number: u64, action: &Action) -> Check {
        let is_suspended = self.hosts[name].is_suspended;
        let mut flights = self.hosts[name].client.flights.iter();
        let Some(flight) = flights.find(|flight| flight.number == number).cloned() else {
            return Ok(());
        };
        match action {
            Action::Arrive { .. } => return self.arrive(name, number),
            Action::Prompt { .. } => self.arrive(name, number)?,
            Action::Return { .. } => {}
            _ if is_suspended => {}
            Action::Lose { .. } if flight.thread.is_none() => {
                self.tell(|| format!("lost: {flight}"));
                let connection = flight.connection;
                self.with(name, |c, now| c.break_connection(connection, true, now));
            }
            Action::Break { is_lost, .. } => {
                self.tell(|| format!("the connection breaks of {flight}"));
                let (connection, is_lost) = (flight.connection, *is_lost);
                self.with(name, |c, now| c.break_connection(connection, is_lost, now));
            }
            Action::GiveUp { is_kept, .. } if flight.thread.is_some() => {
                self.tell(|| format!("no answer in time to {flight}"));
                self.with(name, |c, now| c.give_up_call(number, *is_kept, now));
            }
            Action::Refuse { why, .. } => {
                self.tell(|| format!("{why:?}: {flight}"));
                let kind = match why {
                    Refusal::Unreachable => FailureKind::Unreachable,
                    Refusal::AllBusy => FailureKind::PoolExhausted,
                    Refusal::NotReady => FailureKind::NotReady,
                    Refusal::Forbidden => FailureKind::Permission,
                };
                self.with(name, |client, now| client.refuse(number, kind, now));
            }
            _ => {}
        }
        if matches!(action, Action::Return { .. } | Action::Prompt { .. }) && !is_suspended {
            self.note_ticket(name, number);
            return self.come_back(name, number);
        }
        self.look_after(name)
    }

    /// The answer that comes back may tell a place in line.
    fn note_ticket(&mut self, name: usize, number: u64) {
        let mut flights = self.hosts[name].client.flights.iter();
        let flight = flights.find(|flight| flight.number == number);
        let told = flight.and_then(|flight| {
            let reply = flight.replies.as_ref()?.first()?;
            let words = crate::scripts::words_of(reply).ok()?;
            let gate = self.gate_of(flight.calls.first()?)?;
            let id = flight.calls.first()?.arguments.first()?.clone();
            let ticket = words.get(1)?.parse().ok()?;
            (words[0] == "queued" && flight.calls[0].acquires(&id)).then_some(((gate, id), ticket))
        });
        if let Some((key, ticket)) = told {
            self.hosts[name].ids.entry(key).or_default().ticket = Some(ticket);
        }
    }

    fn let_mail(&mut self, name: usize, at: usize, action: &Action) -> Check {
        let mail = &mut self.hosts[name].client.mail;
        match action {
            Action::Read { .. } => {
                let text = mail.remove(at);
                if self.hosts[name].is_suspended {
                    self.hosts[name].client.mail.push(text);
                    return Ok(());
                }
                self.tell(|| format!("c{name} reads: {text}"));
                if self.hosts[name].overheard.contains(&text) {
                    self.note_message(name, &text);
                }
                self.with(name, |client, now| client.read(&text, now));
                self.look_after(name)?;
                self.check_beliefs()
            }
            Action::LoseMail { .. } => {
                let text = mail.remove(at);
                self.tell(|| format!("lost on its way to c{name}: {text}"));
                Ok(())
            }
            _ => {
                let text = mail[at].clone();
                mail.push(text);
                Ok(())
            }
        }
    }

    /// Somebody who may publish on the channel of a client sends something.
    fn forge(&mut self, name: usize, caller: usize, forgery: Forgery) {
        let now = self.now();
        let host = &self.hosts[name];
        let one_of = |list: &Vec<String>, at: usize| list.get(of(at, list.len())).cloned();
        let text = match forgery {
            Forgery::Again(at) => one_of(&host.overheard, at),
            Forgery::Changed(at) => one_of(&host.overheard, at).map(|text| {
                let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
                words[2] = (now * 1_000 + 1_000).to_string();
                words[3] = (now + 3_600_000).to_string();
                words.join(" ")
            }),
            Forgery::New(lie, signature) => {
                let waiting = host.client.callers.values().filter_map(|caller| match caller {
                    Caller::Waits(waiting, want) => Some((&waiting.mailbox, want)),
                    _ => None,
                });
                let waiting: Vec<_> = waiting.collect();
                let secrets = waiting.iter().map(|(mailbox, want)| {
                    let secret = mailbox.secret.clone().unwrap_or_default();
                    (want.id.clone(), secret)
                });
                let valid: Vec<_> = secrets.collect(); // an own id may wait for several semaphores
                let waiting = waiting.get(of(caller, waiting.len()));
                waiting.and_then(|(mailbox, want)| {
                    let (id, permits) = (&want.id, want.permits.unwrap_or(1));
                    let (fence, end) = (now * 1_000 + 1_000, now + 3_600_000);
                    let text = match lie {
                        Lie::Granted => format!("{id} {permits} {fence} {end} {now}"),
                        Lie::AskNow => format!("{id} 0 0 0 {now}"),
                        Lie::Revoked => format!("{id} 0 0 -1 {now}"),
                    };
                    let own = mailbox.secret.as_deref().unwrap_or_default();
                    match signature {
                        Signature::None => Some(text),
                        Signature::AllBut(digit) => {
                            let text = signed(&format!("#{own}"), text);
                            let at = text.len() - 40 + digit % 40;
                            let wrong = if &text[at..=at] == "0" { "1" } else { "0" };
                            Some(format!("{}{wrong}{}", &text[..at], &text[at + 1..]))
                        }
                        Signature::OfAnother(at) => {
                            let mut others = host.secrets.clone();
                            others.retain(|secret| !valid.contains(secret));
                            let (_, secret) = others.get(of(at, others.len()))?;
                            Some(signed(&format!("#{secret}"), text))
                        }
                    }
                })
            }
        };
        if let Some(text) = text
            && self.hosts[name].client.hears
        {
            self.tell(|| format!("somebody sends c{name}: {text}"));
            self.hosts[name].client.mail.push(text);
        }
    }

    fn let_process(&mut self, action: &Action) -> Check {
        let clients = self.hosts.len();
        let name = match action {
            Action::Die { client } => {
                let name = of(*client, clients);
                let host = &mut self.hosts[name];
                host.client.die();
                host.promised.clear();
                host.ids.clear();
                self.tell(|| format!("c{name} dies"));
                name
            }
            Action::Born { client } => {
                let name = of(*client, clients);
                let client = &mut self.hosts[name].client;
                if !client.is_alive {
                    let flights = std::mem::take(&mut client.flights);
                    *client = Client::new(name, client.last);
                    client.flights = flights;
                }
                name
            }
            Action::Drop { client, by_server, by_client } => {
                let name = of(*client, clients);
                let client = &mut self.hosts[name].client;
                client.hears = false;
                client.listens &= !by_server;
                client.is_up &= !by_client;
                self.tell(|| format!("the subscription of c{name} drops"));
                name
            }
            Action::Subscribe { client } => {
                let name = of(*client, clients);
                let client = &self.hosts[name].client;
                if client.is_alive && !(client.hears && client.is_up) {
                    self.with(name, |client, now| client.subscribe(now));
                    self.tell(|| format!("c{name} subscribes again"));
                }
                name
            }
            // Of each client one clock may be wrong: of every other one the monotonic clock, which stands still, and of the
            // others the wall clock.
            Action::Suspend { client } => {
                let name = of(*client, clients);
                self.hosts[name].is_suspended = name.is_multiple_of(2);
                name
            }
            Action::Resume { client } => {
                let name = of(*client, clients);
                self.hosts[name].is_suspended = false;
                name
            }
            Action::StepWall { client, ms } => {
                let name = of(*client, clients);
                let ms = if name.is_multiple_of(2) { ms.abs() } else { *ms };
                self.hosts[name].ahead += ms * 1_000;
                self.tell(|| format!("the wall clock of c{name} steps by {ms} ms"));
                name
            }
            _ => return Ok(()),
        };
        self.set_listeners();
        self.look_after(name)
    }

    /// Many ask at once, whom nobody hears of again.
    fn crowd(&mut self, gate: usize, count: usize, lease_ms: u64, wait_ms: u64) -> Check {
        let keys = &self.gates[gate].keys.clone();
        for number in 0..count {
            let ask = Ask {
                id: &format!("crowd/{}/{number}", self.calls),
                permits: Some(1),
                limit: if World::is_mutex(gate) { 1 } else { 120 },
                lease_ms: lease_ms.max(1),
                wait_ms,
                inbox: "luagate:inbox:nobody",
                ticket: 0,
            };
            self.call(&Acquire { keys, ask })?;
        }
        self.calls += 1;
        Ok(())
    }

    /// An id that a client uses.
    fn id_of(&self, name: usize, gate: usize) -> Option<String> {
        let (keys, client) = (&self.gates[gate].keys, &self.hosts[name].client);
        let permits = client.permits.values().map(|permit| &permit.identity);
        let mut held = permits.filter(|identity| identity.keys == *keys);
        let mut waiting = client.callers.values().filter_map(|caller| match caller {
            Caller::Waits(_, want) if want.keys == *keys => Some(&want.id),
            _ => None,
        });
        let id = waiting.next().or(held.next().map(|identity| &identity.id));
        id.cloned()
    }

    fn stale(&mut self, gate: usize, client: usize, refresh: bool) -> Check {
        let Some(id) = &self.id_of(client, gate) else {
            return Ok(());
        };
        let model = &self.gates[gate].model;
        let holder = model.holders.get(id).map(|holder| holder.fence);
        let ticket = model.place(id).map(|place| model.queue[place].ticket);
        let Some(fence) = holder.or(ticket).map(|fence| fence - 1) else {
            return Ok(());
        };
        let keys = &self.gates[gate].keys.clone();
        let fence = Some(fence);
        match refresh {
            true => {
                let refresh = Refresh { keys, id, lease_ms: 1, fence };
                self.call(&refresh).map(drop)
            }
            false => self.call(&release(keys, id, fence)).map(drop),
        }
    }

    /// Somebody takes away what an id has. Its client may learn of it late.
    fn revoke(&mut self, gate: usize, name: usize) -> Check {
        // Rather what somebody was granted who does not know yet.
        let mut mail = self.hosts[name].client.mail.iter();
        let told = mail.find_map(|text| {
            let id = text.split(' ').next()?;
            self.gates[gate].model.holders.contains_key(id).then(|| id.to_owned())
        });
        let Some(id) = &told.or_else(|| self.id_of(name, gate)) else {
            return Ok(());
        };
        let keys = &self.gates[gate].keys.clone();
        let ids = &mut self.hosts[name].ids;
        ids.entry((gate, id.clone())).or_default().is_revoked = true;
        self.with(name, |client, now| client.excuse(now, |identity| identity.id == *id));
        self.lose_replies(name)?;
        self.call(&release(keys, id, None)).map(drop)
    }

    /// What clients hold may be lost from here on without a word.
    fn excuse(&mut self) -> Check {
        for name in 0..self.hosts.len() {
            let host = &mut self.hosts[name];
            host.client.mail.clear();
            host.promised.clear();
            // An entry of the copy may have come back, which ends by itself.
            host.ids.values_mut().for_each(|noted| noted.is_late = true);
            self.with(name, |client, now| client.excuse(now, |_| true));
            self.lose_replies(name)?;
        }
        Ok(())
    }

    fn lose_replies(&mut self, name: usize) -> Check {
        let flights = self.hosts[name].client.flights.iter();
        let answered = flights.filter(|flight| flight.replies.is_some());
        let connections: Vec<u64> = answered.map(|flight| flight.connection).collect();
        for connection in connections {
            self.with(name, |c, now| c.break_connection(connection, false, now));
        }
        self.look_after(name)
    }

    fn restart(&mut self, empty: bool) -> Check {
        let (store, gates, latch) = match &self.backup {
            Some(backup) if !empty => (backup.store.clone(), Some(backup.gates.clone()), Some(backup.latch.clone())),
            _ => (Store::default(), None, None),
        };
        let is_empty = gates.is_none();
        self.server.set_store(store);
        self.set_clock();
        for (place, gate) in self.gates.iter_mut().enumerate() {
            gate.come_back(gates.as_ref().map(|gates| &gates[place]));
        }
        self.latch.come_back(latch.as_ref());
        for Host { client, .. } in &mut self.hosts {
            (client.hears, client.listens) = (false, false);
        }
        self.set_listeners();
        self.excuse()?;
        self.count.losses += 1;
        self.tell(|| {
            let how = if is_empty { "empty" } else { "with the copy" };
            format!("the server restarts, {how}")
        });
        self.time_passes()
    }

    fn replace_key(&mut self, gate: usize, key: usize, by: &Store) -> Check {
        if self.gates[gate].replace_key(&mut self.server, key, by) {
            self.excuse()?;
            self.count.losses += 1;
            self.tell(|| format!("key {key} of {gate} is evicted or put back"));
        }
        Ok(())
    }
}

fn release<'a>(keys: &'a Keys, id: &'a str, fence: Option<u64>) -> Release<'a> {
    let keep = 0;
    Release { keys, id, keep, fence }
}

/// Whether a caller may use this id of its own: nobody else does, and no call with it is still on its way that nothing is
/// going to undo.
fn may_use(client: &Client, keys: &Keys, id: &str) -> bool {
    let is_used = |other: &Keys, used: &str| other == keys && used == id;
    let mut held = client.permits.values().map(|permit| &permit.identity);
    let mut callers = client.callers.values().filter_map(Caller::want);
    let undone = client.releases.pending.iter();
    let undone: Vec<u64> = undone.filter_map(|pending| pending.connection).collect();
    let mut lost = client.flights.iter().filter(|flight| {
        let mut calls = flight.calls.iter();
        flight.thread.is_none()
            && !undone.contains(&flight.connection)
            && calls.any(|call| call.keys[0] == *keys.meta && call.acquires(id))
    });
    lost.next().is_none()
        && !held.any(|identity| is_used(&identity.keys, &identity.id))
        && !callers.any(|want| is_used(&want.keys, &want.id))
}
