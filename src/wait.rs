//! Waiting: the threads that execute the actions of the waiter in `protocol`.

pub(crate) mod blocking;
pub(crate) mod cancel;
pub(crate) mod inboxes;
mod mailbox;
mod reading;
mod registry;
mod subscriber;
pub(crate) mod trial;
