//! The ticket of a wait.

use super::Invalid;
use std::fmt;
use std::str::FromStr;

/// The highest number that the scripts accept.
const HIGHEST: u64 = (1 << 53) - 1;

/// A place in the line of one semaphore or lock. Of two waiters, the one with the smaller ticket is served
/// first.
///
/// The server gives it to a waiter. A program receives it with [`Cancelled`](crate::errors::Cancelled), from
/// [`Permit::ticket`](crate::Permit::ticket) or in an [`Inspection`](crate::inspection::Inspection).
/// [`Semaphore::ticket`](crate::Semaphore::ticket) takes it for a later wait for the same name. To keep it
/// while the program restarts, store its text:
///
/// ```
/// # fn resume(ticket: luagate::Ticket, jobs: luagate::Semaphore) -> Result<(), luagate::Error> {
/// let stored = ticket.to_string();
/// let permit = jobs.ticket(stored.parse::<luagate::Ticket>()?).acquire()?;
/// # permit.release()?;
/// # Ok(())
/// # }
/// ```
///
/// A number is not a ticket:
///
/// ```compile_fail
/// # fn guess(jobs: luagate::Semaphore) {
/// jobs.ticket(1_795_205_203_259_456);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket in a reply of the server.
    pub(crate) fn new(number: u64) -> Ticket {
        Ticket(number)
    }

    /// The argument of the scripts.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Decimal digits, the same in all languages.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Ticket {
    type Err = Invalid;

    /// Reads the text of a ticket.
    ///
    /// # Errors
    /// [`Invalid`] for a text that no ticket has.
    fn from_str(text: &str) -> Result<Ticket, Invalid> {
        let number = text.parse().ok().filter(|number| (1..=HIGHEST).contains(number));
        number.map(Ticket).filter(|ticket| ticket.to_string() == text).ok_or_else(|| {
            let why = "not the text of a ticket. Accepted: what a ticket of luagate displays, 1 to 16 decimal digits";
            Invalid::new("ticket", why)
        })
    }
}
