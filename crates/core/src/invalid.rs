//! Arguments that are not valid. Their texts are here, and not in `luagate`: each belongs to the rule that it
//! explains.

use std::fmt;

#[doc(hidden)]
/// The highest limit of a semaphore and the highest count of a latch. The writer of a reader-writer lock
/// takes as many permits.
pub const MOST: u32 = i32::MAX as u32;

/// An invalid argument: its name, the defect and the accepted input. Nothing was sent, or the script refused
/// the call and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: String,
    why: String,
}

impl Invalid {
    #[doc(hidden)]
    pub fn new(what: &str, why: impl Into<String>) -> Invalid {
        Invalid { what: what.to_owned(), why: why.into() }
    }

    #[doc(hidden)]
    /// Checks a number of permits or of calls. `remedy` follows the text.
    pub fn check_count(what: &str, count: u32, remedy: &str) -> Result<(), Invalid> {
        if (1..=MOST).contains(&count) {
            return Ok(());
        }
        Err(Invalid::new(what, format!("{count} is out of range. Accepted: 1 to {MOST}{remedy}")))
    }

    #[doc(hidden)]
    /// The same error, with the place of the argument before the reason.
    pub fn within(self, place: &str) -> Invalid {
        Invalid { why: format!("{place}: {}", self.why), ..self }
    }

    #[doc(hidden)]
    /// The same error, with another way to do it at the end.
    pub fn or(self, remedy: &str) -> Invalid {
        Invalid { why: format!("{}. {remedy}", self.why), ..self }
    }

    /// The argument: `name`, `id`, `permits`, `limit`, `lease`, `timeout`, ...
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Invalid {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_between_one_and_the_highest_limit() {
        let accepted = [0, 1, MOST, MOST + 1].map(|count| Invalid::check_count("permits", count, "").is_ok());
        assert_eq!(accepted, [false, true, true, false]);
    }
}
