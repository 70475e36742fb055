//! Calls of third parties, which are not simulated as clients: each is executed at once.

use super::{COUNT, LIFE_MS, of};
use crate::action::Action;
use crate::client::waits::Caller;
use crate::gate::Gate;
use crate::ledger::Check;
use crate::model::{self, is_cooling};
use crate::protocol::keys::Keys;
use crate::protocol::latch::{Count, CountDown, Delete};
use crate::protocol::semaphore::{
    Acquire, Ask, AskOne, Inspect, Lookup, Refresh, Release, Resize, TryAcquireSeveral,
};
use crate::world::{GROUP, World};

/// The highest ticket that the scripts accept as an argument.
const HIGHEST: u64 = (1 << 53) - 1;

impl World {
    pub(super) fn let_outsider(&mut self, action: &Action) -> Check {
        let clients = self.hosts.len();
        match action {
            Action::ManyJoin { gate, count, .. } => {
                self.many_join(of(*gate, self.gates.len()), *count, action)
            }
            Action::Invent { gate, .. } => self.invent(of(*gate, self.gates.len()), action),
            Action::Confirm { gate } => self.confirm(of(*gate, self.gates.len())),
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
            Action::TryAll { name, asked } => {
                let id = &format!("all/{}", name % 2);
                let gates = self.gates[GROUP].iter();
                let keys: Vec<Keys> = gates.map(|gate| gate.keys.clone()).collect();
                let one = |((gate, keys), ask): ((usize, _), &model::AskOne)| AskOne {
                    keys,
                    permits: if World::is_mutex(gate) { 1 } else { ask.permits },
                    limit: if World::is_mutex(gate) { 1 } else { ask.limit },
                    lease_ms: ask.lease_ms,
                    at_least_ms: ask.at_least_ms,
                };
                let asked: Vec<AskOne> = GROUP.zip(&keys).zip(asked).map(one).collect();
                self.call(&TryAcquireSeveral { id, asked: &asked }).map(drop)
            }
            Action::FreeAll { name } => {
                let id = &format!("all/{}", name % 2);
                for gate in GROUP {
                    let keys = &self.gates[gate].keys.clone();
                    self.call(&release(keys, id, None))?;
                }
                Ok(())
            }
            _ => self.let_latch(action),
        }
    }

    fn let_latch(&mut self, action: &Action) -> Check {
        let keys = &self.latch.keys.clone();
        match action {
            Action::CountDown { name } => {
                let count_down =
                    CountDown { keys, id: &format!("part-{}", name % 3), count: COUNT, life_ms: LIFE_MS };
                self.call(&count_down).map(drop)
            }
            Action::Count => self.call(&Count { keys }).map(drop),
            Action::DeleteLatch => self.call(&Delete { keys }).map(drop),
            _ => Ok(()),
        }
    }

    /// Many callers ask at once and never call again.
    fn many_join(&mut self, gate: usize, count: usize, action: &Action) -> Check {
        let Action::ManyJoin { lease_ms, wait_ms, max_waiting, head_start_ms, at_least_ms, .. } = *action
        else {
            return Ok(());
        };
        let keys = &self.gates[gate].keys.clone();
        for number in 0..count {
            let ask = Ask {
                id: &format!("many/{}/{number}", self.calls),
                permits: Some(1),
                limit: if World::is_mutex(gate) { 1 } else { 120 },
                lease_ms: lease_ms.max(1),
                wait_ms,
                inbox: "luagate:inbox:nobody",
                ticket: 0,
                max_waiting,
                at_least_ms,
                head_start_ms,
            };
            self.call(&Acquire { keys, ask })?;
        }
        self.calls += 1;
        Ok(())
    }

    fn invent(&mut self, gate: usize, action: &Action) -> Check {
        let Action::Invent { ahead, wait_ms, max_waiting, head_start_ms, .. } = *action else {
            return Ok(());
        };
        let keys = &self.gates[gate].keys.clone();
        let ask = Ask {
            id: &format!("invents/{}", self.calls),
            permits: Some(1),
            limit: if World::is_mutex(gate) { 1 } else { 3 },
            lease_ms: 400,
            wait_ms,
            inbox: "luagate:inbox:nobody",
            ticket: self.micros().saturating_add_signed(ahead).clamp(1, HIGHEST),
            max_waiting,
            at_least_ms: 0,
            head_start_ms,
        };
        self.calls += 1;
        self.call(&Acquire { keys, ask }).map(drop)
    }

    /// Refreshes each permit by its fence. The reply must be that of the model, which accepts every fence. No
    /// lease ends earlier because of it: after a loss of keys, only the ledger has the last refreshes.
    fn confirm(&mut self, gate: usize) -> Check {
        let Gate { keys, model, ledger, .. } = &self.gates[gate];
        let (keys, holders, known) = (&keys.clone(), model.holders.clone(), ledger.holders.clone());
        for (id, holder) in &holders {
            let known = known.get(id).filter(|entry| entry.fence == holder.fence);
            let ends = known
                .map_or(holder.ends, |entry| holder.ends.zip(entry.ends).map(|(one, other)| one.max(other)));
            let left = ends.map(|ends| ends.saturating_sub(self.now()));
            if left == Some(0) || is_cooling(id) {
                continue;
            }
            self.call(&Refresh { keys, id, lease_ms: left.unwrap_or(0), fence: Some(holder.fence) })?;
        }
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
        if refresh {
            let refresh = Refresh { keys, id, lease_ms: 1, fence };
            self.call(&refresh).map(drop)
        } else {
            self.call(&release(keys, id, fence)).map(drop)
        }
    }

    /// A third party revokes what an id has. The client may notice it late.
    fn revoke(&mut self, gate: usize, name: usize) -> Check {
        // Preferably a grant whose client does not know of it yet.
        let mut mail = self.hosts[name].client.mail.iter();
        let reported = mail.find_map(|text| {
            let id = text.split(' ').next()?;
            self.gates[gate].model.holders.contains_key(id).then(|| id.to_owned())
        });
        let Some(id) = &reported.or_else(|| self.id_of(name, gate)) else {
            return Ok(());
        };
        let keys = &self.gates[gate].keys.clone();
        let ids = &mut self.hosts[name].ids;
        ids.entry((gate, id.clone())).or_default().is_revoked = true;
        self.with(name, |client, now| client.excuse(now, |identity| identity.id == *id));
        self.lose_replies(name)?;
        self.call(&release(keys, id, None)).map(drop)
    }
}

fn release<'a>(keys: &'a Keys, id: &'a str, fence: Option<u64>) -> Release<'a> {
    let keep = 0;
    Release { keys, id, keep, fence }
}
