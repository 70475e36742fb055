//! The protocol without sockets, threads or a clock.

pub(crate) mod autocomplete;
pub(crate) mod call;
pub(crate) mod exchange;
pub(crate) mod held;
pub(crate) mod id;
pub(crate) mod inbox;
pub(crate) mod keeper;
pub(crate) mod keys;
pub(crate) mod latch;
pub(crate) mod lease;
pub(crate) mod mailbox;
pub(crate) mod message;
pub(crate) mod name_from;
pub(crate) mod releases;
pub(crate) mod replicas;
pub(crate) mod reply;
pub(crate) mod resp;
mod script;
pub(crate) mod semaphore;
pub(crate) mod waiter;
