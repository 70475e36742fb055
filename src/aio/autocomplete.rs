//! Autocomplete: finds stored names by their first letters. See [`luagate::autocomplete`](crate::autocomplete).
//!
//! ```no_run
//! use luagate::aio::autocomplete::{Prefix, Recent};
//! # async fn example() -> Result<(), luagate::Error> {
//! let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
//! let recent = Recent::new(&gate, "ann").keep(50);
//! recent.add("Alice").await?;
//! let names = recent.matching("al", 10).await?; // newest first
//!
//! let guild = Prefix::new(&gate, "guild:17");
//! guild.add(["alice", "bob"]).await?;
//! let names = guild.matching("al", 10).await?; // in the order of their bytes
//! # Ok(())
//! # }
//! ```
//!
//! # Cancel safety
//! If the future of a change is dropped, the server may have run it or not. Every operation can be repeated.

use super::gate::Gate;
use crate::autocomplete::{self, texts};
use crate::engine::mode::Mode;
use crate::error::CallError;
use std::fmt;

/// The most recent contacts of a user, newest first. A contact that is added again becomes the newest. The oldest
/// contacts are dropped.
///
/// It consists of a name and a setting: clones are cheap, and any number of tasks can share it.
#[derive(Clone)]
pub struct Recent(autocomplete::Recent);

impl Recent {
    /// The recent contacts of `user`. Sends nothing to the server: the first call reports an invalid name.
    ///
    /// The rules for a user's name are those for the name of a [semaphore](Gate::semaphore). Both use different keys.
    pub fn new(gate: &Gate, user: &str) -> Recent {
        Recent(autocomplete::Recent::new(&gate.0, user))
    }

    /// How many contacts [`add`](Recent::add) keeps: 1 to 1,000. The default is 100.
    #[must_use]
    pub fn keep(self, keep: u32) -> Recent {
        Recent(self.0.keep(keep))
    }

    /// Makes `contact` the newest. Returns the number of contacts after the call.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `keep` is not 1 to 1,000, or if the user's name is not valid. A server whose memory is
    /// full refuses every contact except the one that is already the newest. The call can be repeated.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn add(&self, contact: impl AsRef<[u8]>) -> Result<u32, CallError> {
        self.0.add_by(contact.as_ref(), Mode::Async).await
    }

    /// Removes `contact`. Returns whether it was stored.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn remove(&self, contact: impl AsRef<[u8]>) -> Result<bool, CallError> {
        self.0.remove_by(contact.as_ref(), Mode::Async).await
    }

    /// Returns up to `count` (1 to 1,000) contacts that begin with `prefix`, newest first. Upper and lower case of
    /// ASCII letters are equal; all other bytes must be the same. An empty prefix matches all contacts. Writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `count` is out of range, or if a contact that was found is not UTF-8. Use
    /// [`matching_bytes`](Recent::matching_bytes) for such contacts.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn matching(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<String>, CallError> {
        texts("contact", self.matching_bytes(prefix, count).await?)
    }

    /// As [`matching`](Recent::matching), for contacts of any bytes. Writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `count` is out of range.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn matching_bytes(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<Vec<u8>>, CallError> {
        self.0.matching_by(prefix.as_ref(), count, Mode::Async).await
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The members of a group, found by their first bytes. A search among 100,000 members is as fast as among 100.
///
/// It consists of a name: clones are cheap, and any number of tasks can share it.
#[derive(Clone)]
pub struct Prefix(autocomplete::Prefix);

impl Prefix {
    /// The members of `group`. Sends nothing to the server: the first call reports an invalid name.
    ///
    /// The rules for a group's name are those for the name of a [semaphore](Gate::semaphore). Both use different keys.
    pub fn new(gate: &Gate, group: &str) -> Prefix {
        Prefix(autocomplete::Prefix::new(&gate.0, group))
    }

    /// Adds up to 1,000 members in one atomic call. Returns how many of them are new.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for more than 1,000 members, or if the group's name is not valid. The call can be
    /// repeated. The repetition counts only members that were not stored before it.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn add<M: AsRef<[u8]>>(&self, members: impl IntoIterator<Item = M>) -> Result<u32, CallError> {
        let members: Vec<M> = members.into_iter().collect();
        self.0.add_by(&members, Mode::Async).await
    }

    /// Removes up to 1,000 members in one atomic call. Returns how many of them were stored.
    ///
    /// # Errors
    /// As for [`add`](Prefix::add).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn remove<M: AsRef<[u8]>>(&self, members: impl IntoIterator<Item = M>) -> Result<u32, CallError> {
        let members: Vec<M> = members.into_iter().collect();
        self.0.remove_by(&members, Mode::Async).await
    }

    /// Returns the first `count` (1 to 1,000) members that begin with `prefix`, in the order of their bytes. An empty
    /// prefix matches all members. The case of letters matters. To ignore it, store names in lower case and search in
    /// lower case. Writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `count` is out of range, or if a member that was found is not UTF-8. Use
    /// [`matching_bytes`](Prefix::matching_bytes) for such members.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn matching(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<String>, CallError> {
        texts("member", self.matching_bytes(prefix, count).await?)
    }

    /// As [`matching`](Prefix::matching), for members of any bytes. Writes nothing.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `count` is out of range.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn matching_bytes(&self, prefix: impl AsRef<[u8]>, count: u32) -> Result<Vec<Vec<u8>>, CallError> {
        self.0.matching_by(prefix.as_ref(), count, Mode::Async).await
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
