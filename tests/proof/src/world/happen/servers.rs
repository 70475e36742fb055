//! What happens to the server: its memory, its clock, its keys.

use super::of;
use crate::action::Action;
use crate::client::flights::Connection;
use crate::ledger::Check;
use crate::world::{Backup, Host, World};
use luagate_memory::Store;

impl World {
    pub(super) fn let_server(&mut self, action: &Action) -> Check {
        match action {
            Action::Full(full) => {
                self.full = *full;
                self.server.set_full(*full);
                self.tell(|| format!("memory is full: {full}"));
                Ok(())
            }
            Action::Flush => {
                self.nodes.forget_scripts();
                self.tell(|| "the scripts are flushed".to_owned());
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
                    let (now, mut gates) = (self.now(), self.gates.clone());
                    gates.iter_mut().for_each(|gate| gate.clock_steps(now)); // the clock may step before it is used
                    self.backup =
                        Some(Backup { store: self.server.store(), gates, latch: self.latch.clone() });
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
            _ => Ok(()),
        }
    }

    /// From here on, clients may have lost permits unnoticed.
    pub(super) fn excuse(&mut self) -> Check {
        for name in 0..self.hosts.len() {
            let host = &mut self.hosts[name];
            host.client.mail.clear();
            host.promised.clear();
            // The copy may have brought back an entry; it ends with its lease or its deadline.
            host.ids.values_mut().for_each(|noted| noted.is_late = true);
            self.with(name, |client, now| client.excuse(now, |_| true));
            self.lose_replies(name)?;
        }
        Ok(())
    }

    pub(super) fn lose_replies(&mut self, name: usize) -> Check {
        let flights = self.hosts[name].client.flights.iter();
        let answered = flights.filter(|flight| flight.replies.is_some());
        let connections: Vec<Connection> = answered.map(|flight| flight.connection).collect();
        for connection in connections {
            self.with(name, |c, now| c.break_connection(connection, false, now));
        }
        self.look_after(name)
    }

    fn restart(&mut self, empty: bool) -> Check {
        let (store, gates, latch) = match &self.backup {
            Some(backup) if !empty => {
                (backup.store.clone(), Some(backup.gates.clone()), Some(backup.latch.clone()))
            }
            _ => (Store::default(), None, None),
        };
        let is_empty = gates.is_none();
        self.server.set_store(store);
        self.nodes.forget_scripts();
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
            self.tell(|| format!("key {key} of {gate} is evicted or restored"));
        }
        Ok(())
    }
}
