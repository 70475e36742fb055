//! Waiting: the threads that do what the waiter of `protocol` says.

pub(crate) mod blocking;
pub(crate) mod cancel;
pub(crate) mod inboxes;
mod mailbox;
mod reading;
mod registry;
mod subscriber;
