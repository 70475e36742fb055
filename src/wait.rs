//! Waiting in line.

pub(crate) mod cancel;
pub(crate) mod in_line;
pub(crate) mod inbox;
pub(crate) mod request;
pub(crate) mod subscriber;
pub(crate) mod waits;
