//! Names whose state cannot be read, although that of others can: a key of another program, or of another
//! version of luagate.

use crate::ended::Ended;
use crate::output;
use crate::words;
use luagate::Gate;
use luagate::admin::{self, Name};
use luagate::errors::{CallError, FailureKind};
use luagate::inspection::Inspection;

/// How many names a warning lists.
const LISTED: usize = 10;

/// A name that is skipped.
#[derive(Debug)]
pub struct Unreadable {
    pub name: Name,
    pub error: CallError,
}

/// Reads at most `most` holders and as many waiters, without the first `offset` ones. An error is one of the
/// server, not of this name.
pub fn inspect(
    gate: &Gate,
    name: &Name,
    offset: u32,
    most: u32,
) -> Result<Result<Inspection, Unreadable>, CallError> {
    match admin::inspect_page(&admin::semaphore(gate, name), offset, most) {
        Ok(state) => Ok(Ok(state)),
        Err(error) if is_of_one_name(&error) => Ok(Err(Unreadable { name: name.clone(), error })),
        Err(error) => Err(error),
    }
}

/// Whether the server has answered this call, so that other names may be readable.
fn is_of_one_name(error: &CallError) -> bool {
    use FailureKind::{Other, Permission, UnexpectedReply, WrongType, WrongVersion};
    match error {
        CallError::Failed(failure) | CallError::Unknown(failure) => {
            matches!(failure.kind(), Other | Permission | UnexpectedReply | WrongType | WrongVersion)
        }
        _ => true,
    }
}

/// An error if no name was read, and the cause may lie in the server. `read`: how many names were read.
pub fn check(unreadable: &[Unreadable], read: usize) -> Result<(), Ended> {
    use FailureKind::{Other, Permission};
    let is_general = |found: &&Unreadable| match &found.error {
        CallError::Failed(failure) | CallError::Unknown(failure) => {
            matches!(failure.kind(), Other | Permission)
        }
        _ => false,
    };
    match unreadable.iter().find(is_general) {
        Some(found) if read == 0 => Err(Ended::new(crate::ended::UNREACHABLE, found)),
        _ => Ok(()),
    }
}

/// Names them on the standard error.
pub fn warn<'a>(unreadable: impl IntoIterator<Item = &'a Unreadable>) {
    let mut unreadable = unreadable.into_iter();
    unreadable.by_ref().take(LISTED).for_each(output::warn);
    match unreadable.count() {
        0 => {}
        more => output::warn(format!("{more} more names cannot be read")),
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cannot be read: {}", self.name, words::of(&self.error))
    }
}
