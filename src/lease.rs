//! Permits that are held and releases that are pending: the threads that do what the machines of `protocol` say.

mod callbacks;
pub(crate) mod permits;
pub(crate) mod releases;
