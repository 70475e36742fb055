//! As `engine`.

#[path = "../../../src/wait/polled.rs"]
pub(crate) mod polled;
