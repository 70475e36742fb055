//! Waiting: an operation that executes the actions of the waiter in `protocol`.

pub(crate) mod cancel;
pub(crate) mod inboxes;
mod mailbox;
pub(crate) mod polled;
pub(crate) mod registry;
pub(crate) mod waits;
