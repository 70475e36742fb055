//! Names that are found by their first letters.

use crate::Gate;
use crate::errors::CallError;
use crate::semaphore::blocking;
use luagate::aio::autocomplete;

#[derive(Clone, Debug)]
pub struct Recent {
    aio: autocomplete::Recent,
}

#[derive(Clone, Debug)]
pub struct Prefix {
    aio: autocomplete::Prefix,
}

impl Recent {
    pub fn new(gate: &Gate, user: &str) -> Recent {
        Recent { aio: autocomplete::Recent::new(&gate.aio, user) }
    }

    #[must_use]
    pub fn keep(self, keep: u32) -> Recent {
        Recent { aio: self.aio.keep(keep) }
    }
}

impl Prefix {
    pub fn new(gate: &Gate, group: &str) -> Prefix {
        Prefix { aio: autocomplete::Prefix::new(&gate.aio, group) }
    }

    pub fn add<M: AsRef<[u8]>>(&self, members: impl IntoIterator<Item = M>) -> Result<u32, CallError> {
        crate::runtime::wait(self.aio.add(members))
    }

    pub fn remove<M: AsRef<[u8]>>(&self, members: impl IntoIterator<Item = M>) -> Result<u32, CallError> {
        crate::runtime::wait(self.aio.remove(members))
    }
}

blocking! { Recent:
    add(contact: impl AsRef<[u8]>) -> Result<u32, CallError>;
    remove(contact: impl AsRef<[u8]>) -> Result<bool, CallError>;
    matching(prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<String>, CallError>;
    matching_bytes(prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<Vec<u8>>, CallError>;
}

blocking! { Prefix:
    matching(prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<String>, CallError>;
    matching_bytes(prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<Vec<u8>>, CallError>;
}
