//! Autocomplete: finds stored names by their first letters.
//!
//! [`Recent`] stores the most recent contacts of a user. [`Prefix`] stores the members of a group.
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
//! The idea is from *Redis in Action*, section 6.1. The book uses a `MULTI` transaction for each change, and
//! a search inserts two sentinels and removes them again. Here each operation is one script, and a search
//! writes nothing. The server compares bytes, so names can be any UTF-8 text or any other bytes.
//!
//! Every operation can be repeated safely. If the connection breaks before the reply, the client repeats the
//! call once. The result is then that of the second run. Therefore `add` may report no new member, and
//! `remove` may report that nothing was stored, although the first run changed it.
//!
//! The keys have no TTL. Contacts and members stay until they are removed. A [`Recent`] also removes its
//! oldest contacts when newer ones are added.

use crate::engine::mode::{Mode, block};
use crate::error::{CallError, Invalid};
use crate::gate::Gate;
use crate::shared::Shared;
use crate::trace::Operation;
use luagate_core::autocomplete::{
    PrefixAdd, PrefixMatch, PrefixRemove, RecentAdd, RecentMatch, RecentRemove,
};
use luagate_core::call::Call;
use luagate_core::keys;
use std::fmt;
use std::sync::Arc;

/// The most recent contacts of a user, newest first. A contact that is added again becomes the newest. The
/// oldest contacts are dropped.
///
/// It consists of a name and a setting: clones are cheap, and any number of threads can share it.
#[derive(Clone)]
pub struct Recent {
    store: Store,
    keep: u32,
}

impl Recent {
    /// The recent contacts of `user`. Sends nothing to the server: the first call reports an invalid name.
    ///
    /// The rules for a user's name are those for the name of a [semaphore](Gate::semaphore). Both use
    /// different keys.
    pub fn new(gate: &Gate, user: &str) -> Recent {
        let key = keys::recent_key(&gate.shared.prefix, user);
        Recent { store: Store { shared: gate.shared.clone(), key }, keep: 100 }
    }

    /// How many contacts [`add`](Recent::add) keeps: 1 to 1,000. The default is 100.
    #[must_use]
    pub fn keep(mut self, keep: u32) -> Recent {
        self.keep = keep;
        self
    }

    /// Makes `contact` the newest. Returns the number of contacts after the call. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `keep` is not 1 to 1,000, or if the user's name is not valid. A server whose
    /// memory is full refuses every contact except the one that is already the newest. The call can be
    /// repeated.
    pub fn add(&self, contact: impl AsRef<[u8]>) -> Result<u32, CallError> {
        block(|mode| self.add_by(contact.as_ref(), mode))
    }

    /// As [`add`](Recent::add), without blocking.
    ///
    /// # Errors
    /// As [`add`](Recent::add).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn add_async(&self, contact: impl AsRef<[u8]>) -> Result<u32, CallError> {
        self.add_by(contact.as_ref(), Mode::Async).await
    }

    async fn add_by(&self, contact: &[u8], mode: Mode) -> Result<u32, CallError> {
        let call = RecentAdd { key: self.store.key()?, contact, keep: self.keep };
        self.store.run(Operation::RecentAdd, &call, mode).await
    }

    /// Removes `contact`. Returns whether it was stored. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    pub fn remove(&self, contact: impl AsRef<[u8]>) -> Result<bool, CallError> {
        block(|mode| self.remove_by(contact.as_ref(), mode))
    }

    /// As [`remove`](Recent::remove), without blocking.
    ///
    /// # Errors
    /// As [`remove`](Recent::remove).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn remove_async(&self, contact: impl AsRef<[u8]>) -> Result<bool, CallError> {
        self.remove_by(contact.as_ref(), Mode::Async).await
    }

    async fn remove_by(&self, contact: &[u8], mode: Mode) -> Result<bool, CallError> {
        let call = RecentRemove { key: self.store.key()?, contact };
        self.store.run(Operation::RecentRemove, &call, mode).await
    }

    /// Returns up to `count` (1 to 1,000) contacts that begin with `prefix`, newest first. Upper and lower
    /// case of ASCII letters are equal; all other bytes must be the same. An empty prefix matches all
    /// contacts. Blocks for one round trip and writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `count` is out of range, or if a contact that was found is not UTF-8. Use
    /// [`matching_bytes`](Recent::matching_bytes) for such contacts.
    pub fn matching(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<String>, CallError> {
        texts("contact", self.matching_bytes(prefix, count)?)
    }

    /// As [`matching`](Recent::matching), without blocking.
    ///
    /// # Errors
    /// As [`matching`](Recent::matching).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn matching_async(
        &self,
        prefix: impl AsRef<[u8]>,
        count: u32,
    ) -> Result<Vec<String>, CallError> {
        texts("contact", self.matching_bytes_async(prefix, count).await?)
    }

    /// As [`matching`](Recent::matching), for contacts of any bytes. Blocks for one round trip and writes
    /// nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `count` is out of range.
    pub fn matching_bytes(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<Vec<u8>>, CallError> {
        block(|mode| self.matching_by(prefix.as_ref(), count, mode))
    }

    /// As [`matching_bytes`](Recent::matching_bytes), without blocking.
    ///
    /// # Errors
    /// As [`matching_bytes`](Recent::matching_bytes).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn matching_bytes_async(
        &self,
        prefix: impl AsRef<[u8]>,
        count: u32,
    ) -> Result<Vec<Vec<u8>>, CallError> {
        self.matching_by(prefix.as_ref(), count, Mode::Async).await
    }

    async fn matching_by(&self, prefix: &[u8], count: u32, mode: Mode) -> Result<Vec<Vec<u8>>, CallError> {
        let call = RecentMatch { key: self.store.key()?, prefix, count };
        self.store.run(Operation::RecentMatch, &call, mode).await
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent")
            .field("key", &self.store.key)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

/// The members of a group, found by their first bytes. A search among 100,000 members is as fast as among
/// 100.
///
/// It consists of a name: clones are cheap, and any number of threads can share it.
#[derive(Clone)]
pub struct Prefix {
    store: Store,
}

impl Prefix {
    /// The members of `group`. Sends nothing to the server: the first call reports an invalid name.
    ///
    /// The rules for a group's name are those for the name of a [semaphore](Gate::semaphore). Both use
    /// different keys.
    pub fn new(gate: &Gate, group: &str) -> Prefix {
        Prefix {
            store: Store { shared: gate.shared.clone(), key: keys::prefix_key(&gate.shared.prefix, group) },
        }
    }

    /// Adds up to 1,000 members in one atomic call. Returns how many of them are new. Blocks for one round
    /// trip.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for more than 1,000 members, or if the group's name is not valid. The call can
    /// be repeated. The repetition counts only members that were not stored before it.
    pub fn add<M: AsRef<[u8]>>(&self, members: impl IntoIterator<Item = M>) -> Result<u32, CallError> {
        let members: Vec<M> = members.into_iter().collect();
        block(|mode| self.add_by(&members, mode))
    }

    /// As [`add`](Prefix::add), without blocking.
    ///
    /// # Errors
    /// As [`add`](Prefix::add).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn add_async<M: AsRef<[u8]>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> Result<u32, CallError> {
        let members: Vec<M> = members.into_iter().collect();
        self.add_by(&members, Mode::Async).await
    }

    async fn add_by<M: AsRef<[u8]>>(&self, members: &[M], mode: Mode) -> Result<u32, CallError> {
        let call = PrefixAdd { key: self.store.key()?, members };
        self.store.run(Operation::PrefixAdd, &call, mode).await
    }

    /// Removes up to 1,000 members in one atomic call. Returns how many of them were stored. Blocks for one
    /// round trip.
    ///
    /// # Errors
    /// As for [`add`](Prefix::add).
    pub fn remove<M: AsRef<[u8]>>(&self, members: impl IntoIterator<Item = M>) -> Result<u32, CallError> {
        let members: Vec<M> = members.into_iter().collect();
        block(|mode| self.remove_by(&members, mode))
    }

    /// As [`remove`](Prefix::remove), without blocking.
    ///
    /// # Errors
    /// As [`remove`](Prefix::remove).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn remove_async<M: AsRef<[u8]>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> Result<u32, CallError> {
        let members: Vec<M> = members.into_iter().collect();
        self.remove_by(&members, Mode::Async).await
    }

    async fn remove_by<M: AsRef<[u8]>>(&self, members: &[M], mode: Mode) -> Result<u32, CallError> {
        let call = PrefixRemove { key: self.store.key()?, members };
        self.store.run(Operation::PrefixRemove, &call, mode).await
    }

    /// Returns the first `count` (1 to 1,000) members that begin with `prefix`, in the order of their bytes.
    /// An empty prefix matches all members. The case of letters matters. To ignore it, store names in lower
    /// case and search in lower case. Blocks for one round trip and writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `count` is out of range, or if a member that was found is not UTF-8. Use
    /// [`matching_bytes`](Prefix::matching_bytes) for such members.
    pub fn matching(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<String>, CallError> {
        texts("member", self.matching_bytes(prefix, count)?)
    }

    /// As [`matching`](Prefix::matching), without blocking.
    ///
    /// # Errors
    /// As [`matching`](Prefix::matching).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn matching_async(
        &self,
        prefix: impl AsRef<[u8]>,
        count: u32,
    ) -> Result<Vec<String>, CallError> {
        texts("member", self.matching_bytes_async(prefix, count).await?)
    }

    /// As [`matching`](Prefix::matching), for members of any bytes. Blocks for one round trip and writes
    /// nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `count` is out of range.
    pub fn matching_bytes(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<Vec<u8>>, CallError> {
        block(|mode| self.matching_by(prefix.as_ref(), count, mode))
    }

    /// As [`matching_bytes`](Prefix::matching_bytes), without blocking.
    ///
    /// # Errors
    /// As [`matching_bytes`](Prefix::matching_bytes).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn matching_bytes_async(
        &self,
        prefix: impl AsRef<[u8]>,
        count: u32,
    ) -> Result<Vec<Vec<u8>>, CallError> {
        self.matching_by(prefix.as_ref(), count, Mode::Async).await
    }

    async fn matching_by(&self, prefix: &[u8], count: u32, mode: Mode) -> Result<Vec<Vec<u8>>, CallError> {
        let call = PrefixMatch { key: self.store.key()?, prefix, count };
        self.store.run(Operation::PrefixMatch, &call, mode).await
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefix").field("key", &self.store.key).finish_non_exhaustive()
    }
}

/// One key, and the gate that its calls go through.
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

    async fn run<C: Call>(&self, operation: Operation, call: &C, mode: Mode) -> Result<C::Answer, CallError> {
        let span = operation.on([self.key()?]);
        span.run(async { Ok(self.shared.call(call, mode).await?) }).await
    }
}

/// Converts the names that were found into text.
fn texts(what: &str, found: Vec<Vec<u8>>) -> Result<Vec<String>, CallError> {
    let text = |(index, bytes): (usize, Vec<u8>)| {
        String::from_utf8(bytes).map_err(|error| {
            let number = index + 1;
            let why =
                format!("match number {number} is not UTF-8 ({error}). For any bytes, use `matching_bytes`");
            CallError::Invalid(Invalid::new(what, why))
        })
    };
    found.into_iter().enumerate().map(text).collect()
}
