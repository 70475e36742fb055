//! The servers of a world: one, or the nodes of a cluster. All of them store their keys in one place, since
//! at any moment only one node has a key. Here is decided which node that is, and how the others answer.

use crate::call::server_error;
use crate::protocol::exchange::RawReply;
use crate::protocol::routing::HostPort;
use crate::protocol::routing::slots::slot_of;
use crate::protocol::value::Value;
use std::collections::BTreeSet;

const HOST: &str = "node";

/// How many nodes a cluster has.
const COUNT: u16 = 3;

/// The nodes by their ports. A server that is no node of a cluster has the port 0.
pub(super) struct Nodes {
    pub(super) places: Vec<Place>,
    /// The highest port so far.
    last: u16,
    /// Nodes that do not answer any more.
    dead: BTreeSet<u16>,
    /// The scripts that each node knows.
    known: BTreeSet<(u16, String)>,
}

/// A slot that has keys.
pub(super) struct Place {
    slot: u16,
    pub(super) owner: u16,
    pub(super) moves: Option<Moves>,
    /// How many times something about it has changed.
    pub(super) changes: u64,
}

/// A slot that moves to another node, key by key.
pub(super) struct Moves {
    pub(super) to: u16,
    /// The keys that have moved.
    keys: BTreeSet<String>,
}

/// How a node redirects a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    Moved(u16),
    Ask(u16),
    TryAgain,
}

impl Redirect {
    pub(super) fn reply(self, slot: u16) -> RawReply {
        match self {
            Redirect::Moved(to) => server_error(&format!("MOVED {slot} {HOST}:{to}")),
            Redirect::Ask(to) => server_error(&format!("ASK {slot} {HOST}:{to}")),
            Redirect::TryAgain => server_error("TRYAGAIN Multiple keys request during rehashing of slot"),
        }
    }
}

impl Nodes {
    /// One server that knows these scripts.
    pub(super) fn one(scripts: impl IntoIterator<Item = String>) -> Nodes {
        let known = scripts.into_iter().map(|script| (0, script)).collect();
        Nodes { places: Vec::new(), last: 0, dead: BTreeSet::new(), known }
    }

    /// A cluster that has at least one of these keys in each slot that is used. The nodes know no script yet.
    pub(super) fn cluster<'a>(keys: impl IntoIterator<Item = &'a str>) -> Nodes {
        let slots: BTreeSet<u16> = keys.into_iter().map(|key| slot_of(key.as_bytes())).collect();
        let owners = (0..).map(|number| number % COUNT + 1);
        let place = |(slot, owner)| Place { slot, owner, moves: None, changes: 0 };
        let places = slots.into_iter().zip(owners).map(place).collect();
        Nodes { places, last: COUNT, dead: BTreeSet::new(), known: BTreeSet::new() }
    }

    pub(super) fn is_cluster(&self) -> bool {
        !self.places.is_empty()
    }

    /// The addresses that a client is given.
    pub(super) fn addresses(&self) -> Vec<HostPort> {
        let ports = 1..=self.last;
        ports.filter(|port| !self.dead.contains(port)).map(|port| (HOST.to_owned(), port)).collect()
    }

    /// The nodes that live.
    pub(super) fn ports(&self) -> Vec<u16> {
        (1..=self.last).filter(|port| !self.dead.contains(port)).collect()
    }

    pub(super) fn is_dead(&self, port: u16) -> bool {
        self.dead.contains(&port)
    }

    pub(super) fn die(&mut self, port: u16) {
        self.dead.insert(port);
    }

    /// A replica on another port takes the place of each dead master.
    pub(super) fn take_over(&mut self) {
        let is_dead = |port: &u16| self.dead.contains(port);
        let mut masters: BTreeSet<u16> = self.places.iter().map(|place| place.owner).collect();
        masters.extend(self.places.iter().filter_map(|place| place.moves.as_ref().map(|moves| moves.to)));
        for dead in masters.into_iter().filter(is_dead) {
            self.last += 1;
            for place in &mut self.places {
                let to = place.moves.as_mut().map(|moves| &mut moves.to);
                for port in [Some(&mut place.owner), to].into_iter().flatten().filter(|port| **port == dead) {
                    *port = self.last;
                    place.changes += 1;
                }
            }
        }
    }

    pub(super) fn place(&self, key: &str) -> Option<usize> {
        let slot = slot_of(key.as_bytes());
        self.places.iter().position(|place| place.slot == slot)
    }

    /// The reply to `CLUSTER SLOTS`.
    pub(super) fn report(&self) -> Value {
        let row = |place: &Place| {
            let (slot, owner) = (Value::Int(place.slot.into()), Value::Int(place.owner.into()));
            let owner = Value::Array(vec![Value::BulkString(HOST.into()), owner]);
            Value::Array(vec![slot.clone(), slot, owner])
        };
        Value::Array(self.places.iter().map(row).collect())
    }

    /// How this node redirects a call for these keys, if it does. `exists`: whether a key exists on any node.
    pub(super) fn redirect(
        &self,
        port: u16,
        keys: &[String],
        asking: bool,
        exists: impl Fn(&str) -> bool,
    ) -> Option<(u16, Redirect)> {
        let place = &self.places[self.place(&keys[0])?];
        let here = |key: &&String| {
            let has_moved = place.moves.as_ref().is_some_and(|moves| moves.keys.contains(*key));
            exists(key) && has_moved == (port != place.owner)
        };
        let count = keys.iter().filter(here).count();
        let redirect = match &place.moves {
            None if port == place.owner => None,
            Some(_) if port == place.owner && count == keys.len() => None,
            Some(_) if port == place.owner && count > 0 => Some(Redirect::TryAgain),
            Some(moves) if port == place.owner => Some(Redirect::Ask(moves.to)),
            Some(moves) if port == moves.to && asking => {
                (keys.len() > 1 && count < keys.len()).then_some(Redirect::TryAgain)
            }
            _ => Some(Redirect::Moved(place.owner)),
        };
        redirect.map(|redirect| (place.slot, redirect))
    }

    /// This node has executed a call for these keys.
    pub(super) fn executed(&mut self, port: u16, keys: &[String]) {
        if let Some(place) = self.place(&keys[0])
            && let Some(moves) = &mut self.places[place].moves
            && moves.to == port
        {
            moves.keys.extend(keys.iter().cloned());
        }
    }

    pub(super) fn knows(&self, port: u16, script: &str) -> bool {
        self.known.contains(&(port, script.to_owned()))
    }

    pub(super) fn learn(&mut self, port: u16, script: &str) {
        self.known.insert((port, script.to_owned()));
    }

    /// All nodes forget their scripts.
    pub(super) fn forget_scripts(&mut self) {
        self.known.clear();
    }
}

impl Place {
    /// Begins to move to this node.
    pub(super) fn begin(&mut self, to: u16) {
        if self.moves.is_none() && to != self.owner {
            self.moves = Some(Moves { to, keys: BTreeSet::new() });
            self.changes += 1;
        }
    }

    /// A key moves.
    pub(super) fn take(&mut self, key: &str) {
        if let Some(moves) = &mut self.moves {
            moves.keys.insert(key.to_owned());
            self.changes += 1;
        }
    }

    /// All keys have moved.
    pub(super) fn end(&mut self) {
        if let Some(moves) = self.moves.take() {
            self.owner = moves.to;
            self.changes += 1;
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        slot_of(key.as_bytes()) == self.slot
    }
}
