//! The protocol without sockets, threads or a clock.

pub(crate) mod lease;
pub(crate) mod message;
pub(crate) mod name;
pub(crate) mod name_from;
pub(crate) mod replicas;
mod resp;
pub(crate) mod script;
