//! Held permits and pending releases. Threads execute the state machines of `protocol`.

pub(crate) mod outbox;
pub(crate) mod permits;
pub(crate) mod releases;
