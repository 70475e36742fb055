//! Permits that are held, and releases that are pending.

pub(crate) mod cleanup;
pub(crate) mod holding;
pub(crate) mod renewal;
