//! Waiting in tasks. They execute the actions of the waiter in `protocol`.

pub(super) mod inboxes;
mod mailbox;
pub(super) mod polled;
pub(super) mod registry;
mod subscription;
pub(super) mod waits;
