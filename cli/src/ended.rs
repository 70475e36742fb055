//! How the command ends without success: an exit status, and a line that says why.

use crate::words;
use nix::sys::signal::Signal;
use std::fmt::Display;

/// The arguments are wrong.
pub const USAGE: u8 = 64;
/// The server cannot be used.
pub const UNREACHABLE: u8 = 69;
/// The permit was not obtained, or the latch did not open in time.
pub const NOT_OBTAINED: u8 = 75;
/// The permit was lost while the command ran.
pub const LOST: u8 = 79;
/// The command exists, but cannot be run.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist.
pub const NOT_FOUND: u8 = 127;

#[derive(Debug)]
pub struct Ended {
    pub status: u8,
    pub message: Option<String>,
    /// This process ends by this signal, as its command or its wait has.
    pub signal: Option<Signal>,
}

impl Ended {
    pub fn new(status: u8, message: impl Display) -> Ended {
        Ended { status, message: Some(message.to_string()), signal: None }
    }

    /// Without a line: the status says everything.
    pub fn silently(status: u8) -> Ended {
        Ended { status, message: None, signal: None }
    }

    pub fn by_signal(signal: Signal) -> Ended {
        Ended { status: 128 + signal as u8, message: None, signal: Some(signal) }
    }

    pub fn usage(message: impl Display) -> Ended {
        Ended::new(USAGE, message)
    }

    /// The status for an error of the library.
    pub fn of(error: impl Into<luagate::Error>) -> Ended {
        use luagate::Error::{AboveLimit, Failed, Invalid, Unknown};
        match error.into() {
            error @ (Invalid(_) | AboveLimit(_)) => Ended::usage(words::of(error)),
            error @ (Failed(_) | Unknown(_)) => Ended::new(UNREACHABLE, words::of(error)),
            error => Ended::new(NOT_OBTAINED, words::of(error)),
        }
    }
}

impl From<std::io::Error> for Ended {
    /// As when too many files are open.
    fn from(error: std::io::Error) -> Ended {
        Ended::new(UNREACHABLE, format!("the system refused a file, a process or a signal: {error}"))
    }
}
