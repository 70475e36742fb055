//! As `engine`.

#[path = "../../../src/foreign.rs"]
mod library;

pub(crate) use library::Foreign;

/// Code of the program does not panic here.
pub(crate) fn new() -> Foreign {
    Foreign::new(|_| {})
}
