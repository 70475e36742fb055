//! The threads for held permits and pending releases. They execute the state machines of `protocol`.

mod callbacks;
pub(crate) mod permits;
pub(crate) mod releases;
