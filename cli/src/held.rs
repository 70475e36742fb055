//! A permit of another process, or its place in line.

use luagate::admin::{self, Kind, Name};
use luagate::{Gate, Semaphore};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    pub name: String,
    kind: String,
    pub id: String,
}

impl Held {
    pub fn new(name: &Name, id: &str) -> Held {
        Held { name: name.name.clone(), kind: name.kind.as_str().to_owned(), id: id.to_owned() }
    }

    /// `None`: a kind that this version does not know.
    pub fn semaphore(&self, gate: &Gate) -> Option<Semaphore> {
        let kind = Kind::ALL.iter().copied().find(|kind| kind.as_str() == self.kind)?;
        Some(admin::semaphore(gate, &Name { name: self.name.clone(), kind }))
    }
}
