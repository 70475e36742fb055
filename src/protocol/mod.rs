//! The protocol without sockets, threads or a clock.
//!
//! Its items are `pub`, because the proofs in `tests/proof` use them from another crate: see `__proof` in `lib.rs`.
//! This module is private. So users of the library reach only what another module exports. Fields and methods of
//! exported types are therefore `pub`.

#![allow(unreachable_pub, reason = "with the feature `__proof`, other crates reach all items")]
#![cfg_attr(feature = "__proof", allow(missing_docs, reason = "items that only the proofs reach need no docs"))]

pub mod autocomplete;
pub mod call;
pub mod exchange;
pub mod held;
pub mod id;
pub mod inbox;
pub mod keeper;
pub mod keys;
pub mod latch;
pub mod latch_target;
pub mod lease;
pub mod outbox;
pub mod releases;
pub mod reply;
pub mod resp;
pub mod routing;
mod script;
pub mod semaphore;
pub mod waiter;
