//! What happens to the nodes of a cluster: slots move, masters die, and replicas take their places.

use super::of;
use crate::action::Action;
use crate::ledger::Check;
use crate::world::World;

impl World {
    pub(super) fn let_nodes(&mut self, action: &Action) -> Check {
        if !self.nodes.is_cluster() {
            return Ok(());
        }
        match action {
            Action::BeginMove { slot, to } => {
                let ports = self.nodes.ports();
                let (slot, to) = (of(*slot, self.nodes.places.len()), ports[of(*to, ports.len())]);
                self.nodes.places[slot].begin(to);
                self.tell(|| format!("slot {slot} begins to move to node {to}"));
            }
            Action::MoveKey { slot, key } => {
                let slot = of(*slot, self.nodes.places.len());
                let keys = self.keys_of(slot);
                if let Some(key) = keys.get(of(*key, keys.len())) {
                    self.nodes.places[slot].take(key);
                    self.tell(|| format!("{key} moves"));
                }
            }
            Action::EndMove { slot } => {
                let slot = of(*slot, self.nodes.places.len());
                let moves = self.nodes.places[slot].moves.is_some();
                self.nodes.places[slot].end();
                if moves {
                    // The new node has no subscribers yet.
                    self.hosts.iter_mut().for_each(|host| host.client.listens = false);
                    self.set_listeners();
                }
                self.tell(|| format!("slot {slot} has moved"));
            }
            Action::NodeDies { node } => {
                let ports = self.nodes.ports();
                if ports.len() > 1 {
                    return self.let_node_die(ports[of(*node, ports.len())]);
                }
            }
            Action::TakeOver { loses } => return self.take_over(*loses),
            _ => {}
        }
        Ok(())
    }

    /// The keys of this slot that exist.
    fn keys_of(&mut self, slot: usize) -> Vec<String> {
        let store = self.server.store();
        let names = self.key_names();
        let place = &self.nodes.places[slot];
        let there = |key: &&str| place.has(key) && store.expires_at(key.as_bytes()).is_some();
        names.iter().map(String::as_str).filter(there).map(str::to_owned).collect()
    }

    /// A node ends. Its connections break; calls that it has not executed are lost.
    fn let_node_die(&mut self, port: u16) -> Check {
        self.nodes.die(port);
        self.tell(|| format!("node {port} dies"));
        for name in 0..self.hosts.len() {
            let flights = self.hosts[name].client.flights.iter();
            let connections =
                flights.map(|flight| flight.connection).filter(|connection| connection.port == port);
            for connection in connections.collect::<Vec<_>>() {
                self.with(name, |client, now| client.break_connection(connection, true, now));
            }
            self.look_after(name)?;
        }
        Ok(())
    }

    /// Replicas take the places of dead masters. With `loses`, they have not received what happened since the
    /// copy was made.
    fn take_over(&mut self, loses: bool) -> Check {
        if !self.nodes.places.iter().any(|place| self.nodes.is_dead(place.owner)) {
            return Ok(());
        }
        let dead = |port| self.nodes.is_dead(port);
        let lost: Vec<usize> = (0..self.nodes.places.len())
            .filter(|place| {
                dead(self.nodes.places[*place].owner) && self.nodes.places[*place].moves.is_none()
            })
            .collect();
        self.nodes.take_over();
        self.count.failovers += 1;
        if loses && !lost.is_empty() && self.backup.is_some() {
            for place in lost {
                self.restore_place(place);
            }
            self.set_clock();
            self.excuse()?;
            self.count.losses += 1;
        }
        for host in &mut self.hosts {
            (host.client.hears, host.client.listens) = (false, false);
        }
        self.set_listeners();
        self.tell(|| format!("replicas take over, with losses: {loses}"));
        self.time_passes()
    }

    /// The keys of this slot become those of the copy.
    fn restore_place(&mut self, place: usize) {
        let (Some(backup), place) = (&self.backup, &self.nodes.places[place]) else {
            return;
        };
        let gates =
            self.gates.iter_mut().zip(&backup.gates).filter(|(gate, _)| place.has(gate.keys.list()[0]));
        for (gate, older) in gates {
            for key in older.keys.list() {
                self.server.with_store(|store| store.restore_key(key.as_bytes(), &backup.store));
            }
            gate.come_back(Some(older));
        }
        if place.has(self.latch.keys.list()[0]) {
            for key in backup.latch.keys.list() {
                self.server.with_store(|store| store.restore_key(key.as_bytes(), &backup.store));
            }
            self.latch.come_back(Some(&backup.latch));
        }
    }
}
