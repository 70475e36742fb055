//! Names that begin with what was typed so far.
//!
//! [`Recent`] has the last contacts of a user, [`Prefix`] the members of a group.
//!
//! ```no_run
//! use luagate::autocomplete::{Prefix, Recent};
//! # fn main() -> Result<(), luagate::Error> {
//! let gate = luagate::Gate::open("redis://127.0.0.1/")?;
//! let recent = Recent::new(&gate, "ann").keep(50);
//! recent.add("Alice")?;
//! let names = recent.matching("al", 10)?; // newest first
//!
//! let guild = Prefix::new(&gate, "guild:17");
//! guild.add(["alice", "bob"])?;
//! let names = guild.matching("al", 10)?; // in the order of their bytes
//! # Ok(())
//! # }
//! ```
//!
//! After *Redis in Action*, section 6.1. There each change is a MULTI, and a search inserts two sentinels and takes them out
//! again. Here each operation is one script, and a search inserts nothing: the server compares bytes, so any UTF-8, and any
//! bytes at all, can be stored and searched.
//!
//! Every operation may be run again. One whose connection broke before its reply is repeated once by itself, and what it
//! then tells is what the repetition found: who added is told that nothing was new, who removed that nothing was there,
//! although the first run did it.
//!
//! The keys have no TTL: contacts and members stay until they are removed, or in a [`Recent`] until newer ones take their
//! place.

use crate::error::{CallError, Invalid};
use crate::gate::Gate;
use crate::protocol::autocomplete::{self as calls, Autocomplete};
use crate::protocol::keys;
use crate::shared::Shared;
use crate::trace::Operation;
use std::fmt;
use std::sync::Arc;

/// The last contacts of a user: newest first, moved up when used again, the oldest dropped.
///
/// It is a name and a setting; cloning it is cheap, and it may be shared by any number of threads.
#[derive(Clone)]
pub struct Recent {
    store: Store,
    keep: u32,
}

impl Recent {
    /// The recent contacts of `user`. Asks nobody: a name that cannot be is told by the first call.
    ///
    /// A user is named as a [semaphore](Gate::semaphore) is, and shares no key with one of that name.
    pub fn new(gate: &Gate, user: &str) -> Recent {
        Recent {
            store: Store { shared: gate.shared.clone(), key: keys::recent_key(&gate.shared.prefix, user) },
            keep: 100,
        }
    }

    /// How many contacts [`add`](Recent::add) keeps: 1 to 1,000; 100 unless chosen.
    #[must_use]
    pub fn keep(mut self, keep: u32) -> Recent {
        self.keep = keep;
        self
    }

    /// Makes `contact` the newest; says how many contacts there are now. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError::Invalid`] when `keep` is not 1 to 1,000, or the user's name cannot be. A server without memory refuses
    /// every contact but the newest one. The call may be made again.
    pub fn add(&self, contact: impl AsRef<[u8]>) -> Result<u32, CallError> {
        let (key, keep) = (self.store.key()?, self.keep);
        let call = calls::recent_add(key, contact.as_ref(), keep);
        self.store.run(Operation::RecentAdd, &call)
    }

    /// Forgets `contact`; says whether it was there. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn remove(&self, contact: impl AsRef<[u8]>) -> Result<bool, CallError> {
        let call = calls::recent_remove(self.store.key()?, contact.as_ref());
        self.store.run(Operation::RecentRemove, &call)
    }

    /// At most `count` (1 to 1,000) contacts that begin with `prefix`, newest first. ASCII letters match in either case,
    /// everything else byte by byte; an empty prefix matches all. Blocks for one round trip and writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for another count, or for a contact that is not UTF-8: for those there is
    /// [`matching_bytes`](Recent::matching_bytes).
    pub fn matching(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<String>, CallError> {
        texts("contact", self.matching_bytes(prefix, count)?)
    }

    /// As [`matching`](Recent::matching), for contacts of any bytes. Blocks for one round trip and writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for another count.
    pub fn matching_bytes(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<Vec<u8>>, CallError> {
        let call = calls::recent_match(self.store.key()?, prefix.as_ref(), count);
        self.store.run(Operation::RecentMatch, &call)
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("key", &self.store.key).field("keep", &self.keep).finish_non_exhaustive()
    }
}

/// The members of a group, found by how they begin: among a hundred thousand as fast as among a hundred.
///
/// It is a name; cloning it is cheap, and it may be shared by any number of threads.
#[derive(Clone)]
pub struct Prefix {
    store: Store,
}

impl Prefix {
    /// The members of `group`. Asks nobody: a name that cannot be is told by the first call.
    ///
    /// A group is named as a [semaphore](Gate::semaphore) is, and shares no key with one of that name.
    pub fn new(gate: &Gate, group: &str) -> Prefix {
        Prefix { store: Store { shared: gate.shared.clone(), key: keys::prefix_key(&gate.shared.prefix, group) } }
    }

    /// Adds members, up to 1,000 in one atomic call; says how many are new. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for more than 1,000, or for a group's name that cannot be. The call may be made again; it
    /// then counts as new only what is.
    pub fn add<M: AsRef<[u8]>>(&self, members: impl IntoIterator<Item = M>) -> Result<u32, CallError> {
        let members: Vec<M> = members.into_iter().collect();
        let call = calls::prefix_add(self.store.key()?, &members);
        self.store.run(Operation::PrefixAdd, &call)
    }

    /// Removes members, up to 1,000 in one atomic call; says how many were there. Blocks for one round trip.
    ///
    /// # Errors
    /// As for [`add`](Prefix::add).
    pub fn remove<M: AsRef<[u8]>>(&self, members: impl IntoIterator<Item = M>) -> Result<u32, CallError> {
        let members: Vec<M> = members.into_iter().collect();
        let call = calls::prefix_remove(self.store.key()?, &members);
        self.store.run(Operation::PrefixRemove, &call)
    }

    /// The first `count` (1 to 1,000) members that begin with `prefix`, in the order of their bytes; an empty prefix matches
    /// all. Letters match only in their own case: to ignore it, store names in lower case and ask so. Blocks for one round
    /// trip and writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for another count, or for a member that is not UTF-8: for those there is
    /// [`matching_bytes`](Prefix::matching_bytes).
    pub fn matching(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<String>, CallError> {
        texts("member", self.matching_bytes(prefix, count)?)
    }

    /// As [`matching`](Prefix::matching), for members of any bytes. Blocks for one round trip and writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for another count.
    pub fn matching_bytes(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<Vec<u8>>, CallError> {
        let call = calls::prefix_match(self.store.key()?, prefix.as_ref(), count);
        self.store.run(Operation::PrefixMatch, &call)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefix").field("key", &self.store.key).finish_non_exhaustive()
    }
}

/// One key, and who asks for it.
#[derive(Clone)]
struct Store {
    shared: Arc<Shared>,
    key: Result<String, Invalid>,
}

impl Store {
    fn key(&self) -> Result<&str, Invalid> {
        let key = self.key.as_ref().map_err(Invalid::clone)?;
        Ok(key.as_str())
    }

    fn run<T>(&self, operation: Operation, call: &Autocomplete<'_, T>) -> Result<T, CallError> {
        let span = operation.on([self.key()?]);
        span.run(|| self.shared.call(call))
    }
}

/// What was found, as text.
fn texts(what: &str, found: Vec<Vec<u8>>) -> Result<Vec<String>, CallError> {
    let text = |(index, bytes): (usize, Vec<u8>)| {
        String::from_utf8(bytes).map_err(|error| {
            let number = index + 1;
            let why = format!("match number {number} is not UTF-8 ({error}). For any bytes, use `matching_bytes`");
            CallError::Invalid(Invalid::new(what, why))
        })
    };
    found.into_iter().enumerate().map(text).collect()
}
