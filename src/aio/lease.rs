//! Held permits and pending releases, in a task. It executes the state machines of `protocol`.

pub(super) mod permits;
pub(super) mod releases;
