//! The scripts of autocomplete: the recent contacts of a user, and the members of a group, found by their
//! first bytes.
//!
//! ```no_run
//! use luagate::scripts::autocomplete;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! let key = autocomplete::recent_key("luagate", "ann")?;
//! autocomplete::recent_add(&mut con, &key, "Bob", 100)?;
//! assert_eq!(autocomplete::recent_match(&mut con, &key, "b", 10)?, [b"Bob"]);
//! # Ok(())
//! # }
//! ```
//!
//! Contacts, members and prefixes can be any bytes. A search writes nothing.

pub use luagate_core::autocomplete::{
    PrefixAdd, PrefixMatch, PrefixRemove, RecentAdd, RecentMatch, RecentRemove,
};
pub use luagate_core::keys::{prefix_key, recent_key};

use super::run;
use crate::error::CallError;
use redis::ConnectionLike;

/// Makes a contact the newest of a user's recent contacts, and keeps the newest `keep` (1 to 1,000). Returns
/// the number of contacts after the call. Repeating the call changes nothing.
///
/// # Errors
/// [`CallError::Invalid`] if `keep` is out of range. Otherwise the reason why there was no valid reply.
pub fn recent_add(
    con: &mut dyn ConnectionLike,
    key: &str,
    contact: impl AsRef<[u8]>,
    keep: u32,
) -> Result<u32, CallError> {
    run(con, &RecentAdd { key, contact: contact.as_ref(), keep })
}

/// Removes one of a user's recent contacts. Returns whether it was stored. Repeating the call changes
/// nothing.
///
/// # Errors
/// The reason why there was no valid reply.
pub fn recent_remove(
    con: &mut dyn ConnectionLike,
    key: &str,
    contact: impl AsRef<[u8]>,
) -> Result<bool, CallError> {
    run(con, &RecentRemove { key, contact: contact.as_ref() })
}

/// Returns up to `count` (1 to 1,000) of a user's recent contacts that begin with `prefix`, newest first.
/// Upper and lower case of ASCII letters are equal.
///
/// # Errors
/// [`CallError::Invalid`] if `count` is out of range. Otherwise the reason why there was no valid reply.
pub fn recent_match(
    con: &mut dyn ConnectionLike,
    key: &str,
    prefix: impl AsRef<[u8]>,
    count: u32,
) -> Result<Vec<Vec<u8>>, CallError> {
    run(con, &RecentMatch { key, prefix: prefix.as_ref(), count })
}

/// Adds up to 1,000 members to a group. Returns how many are new. Repeating the call changes nothing and
/// returns 0.
///
/// # Errors
/// [`CallError::Invalid`] for more than 1,000 members. Otherwise the reason why there was no valid reply.
pub fn prefix_add(
    con: &mut dyn ConnectionLike,
    key: &str,
    members: &[impl AsRef<[u8]>],
) -> Result<u32, CallError> {
    run(con, &PrefixAdd { key, members })
}

/// Removes up to 1,000 members from a group. Returns how many were stored. Repeating the call changes nothing
/// and returns 0.
///
/// # Errors
/// [`CallError::Invalid`] for more than 1,000 members. Otherwise the reason why there was no valid reply.
pub fn prefix_remove(
    con: &mut dyn ConnectionLike,
    key: &str,
    members: &[impl AsRef<[u8]>],
) -> Result<u32, CallError> {
    run(con, &PrefixRemove { key, members })
}

/// Returns the first `count` (1 to 1,000) members of a group that begin with `prefix`, in the order of their
/// bytes.
///
/// # Errors
/// [`CallError::Invalid`] if `count` is out of range. Otherwise the reason why there was no valid reply.
pub fn prefix_match(
    con: &mut dyn ConnectionLike,
    key: &str,
    prefix: impl AsRef<[u8]>,
    count: u32,
) -> Result<Vec<Vec<u8>>, CallError> {
    run(con, &PrefixMatch { key, prefix: prefix.as_ref(), count })
}
