//! What luagate decides without a connection, a thread or a clock: calls and replies, ids, keys, leases,
//! waits, held permits, releases, and routes. Time and random numbers are arguments. It has no texts for
//! users, except those of arguments that are not valid.
//!
//! An internal crate of [luagate](https://crates.io/crates/luagate), which may change in any version.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "programs use luagate, which documents what it exports")]
// No input of a caller, a server or a network makes this crate panic. Its tests may panic.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
// `clippy.toml` lists what this crate may not use.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

/// A point at which the proofs plant a fault. `false` everywhere else.
#[cfg(not(luagate_planted))]
macro_rules! fault {
    ($name:literal) => {
        false
    };
}

#[cfg(luagate_planted)]
macro_rules! fault {
    ($name:literal) => {
        crate::mutation::is_planted($name)
    };
}

pub mod autocomplete;
pub mod call;
pub mod exchange;
pub mod failure;
pub mod held;
pub mod id;
pub mod inbox;
pub mod invalid;
pub mod keeper;
pub mod keys;
pub mod kind;
pub mod latch;
pub mod latch_target;
pub mod lease;
pub mod meaning;
pub mod outbox;
pub mod parser;
pub mod release;
pub mod reply;
pub mod resp;
pub mod routing;
pub mod script;
pub mod semaphore;
pub mod value;
pub mod waiter;
