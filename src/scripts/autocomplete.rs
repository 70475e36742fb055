//! The scripts of autocomplete: the recent contacts of a user, and the members of a group, searched by how they begin.
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
//! Contacts, members and prefixes are any bytes. Searching writes nothing.

pub use crate::protocol::keys::{prefix_key, recent_key};

use super::run;
use crate::error::CallError;
use crate::protocol::autocomplete as calls;
use redis::ConnectionLike;

/// Makes a contact the newest of a user's recent ones and keeps the `keep` (1 to 1,000) newest; says how many there are
/// now. Again, it changes nothing more.
///
/// # Errors
/// [`CallError::Invalid`] for another `keep`; otherwise what kept the server from answering.
pub fn recent_add(
    con: &mut dyn ConnectionLike,
    key: &str,
    contact: impl AsRef<[u8]>,
    keep: u32,
) -> Result<u32, CallError> {
    run(con, &calls::recent_add(key, contact.as_ref(), keep))
}

/// Forgets one of a user's recent contacts; says whether it was there. Again, it changes nothing more.
///
/// # Errors
/// What kept the server from answering.
pub fn recent_remove(con: &mut dyn ConnectionLike, key: &str, contact: impl AsRef<[u8]>) -> Result<bool, CallError> {
    run(con, &calls::recent_remove(key, contact.as_ref()))
}

/// At most `count` (1 to 1,000) of a user's recent contacts that begin with `prefix`, the case of ASCII letters ignored;
/// newest first.
///
/// # Errors
/// [`CallError::Invalid`] for another count; otherwise what kept the server from answering.
pub fn recent_match(
    con: &mut dyn ConnectionLike,
    key: &str,
    prefix: impl AsRef<[u8]>,
    count: u32,
) -> Result<Vec<Vec<u8>>, CallError> {
    run(con, &calls::recent_match(key, prefix.as_ref(), count))
}

/// Adds members (up to 1,000) to a group; says how many are new. Again, it changes nothing more, so it says 0.
///
/// # Errors
/// [`CallError::Invalid`] for more than 1,000; otherwise what kept the server from answering.
pub fn prefix_add(con: &mut dyn ConnectionLike, key: &str, members: &[impl AsRef<[u8]>]) -> Result<u32, CallError> {
    run(con, &calls::prefix_add(key, members))
}

/// Removes members (up to 1,000) from a group; says how many were there. Again, it changes nothing more, so it says 0.
///
/// # Errors
/// [`CallError::Invalid`] for more than 1,000; otherwise what kept the server from answering.
pub fn prefix_remove(con: &mut dyn ConnectionLike, key: &str, members: &[impl AsRef<[u8]>]) -> Result<u32, CallError> {
    run(con, &calls::prefix_remove(key, members))
}

/// The first `count` (1 to 1,000) members of a group that begin with `prefix`, in the order of their bytes.
///
/// # Errors
/// [`CallError::Invalid`] for another count; otherwise what kept the server from answering.
pub fn prefix_match(
    con: &mut dyn ConnectionLike,
    key: &str,
    prefix: impl AsRef<[u8]>,
    count: u32,
) -> Result<Vec<Vec<u8>>, CallError> {
    run(con, &calls::prefix_match(key, prefix.as_ref(), count))
}
