//! The time within which a connection must be made.

use super::stream::Stream;
use crate::clock::{machine_now, since};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub(super) struct TimeLimit {
    start: Instant,
    within: Duration,
}

impl TimeLimit {
    /// Begins now.
    pub(super) fn new(within: Duration) -> TimeLimit {
        TimeLimit { start: machine_now(), within }
    }

    /// The time that is left, or the error that it is over.
    pub(super) fn left(self) -> io::Result<Duration> {
        let left = self.within.saturating_sub(since(self.start));
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(left)
    }

    /// Reads what arrives within the limit.
    pub(super) fn read(self, stream: &dyn Stream, buffer: &mut [u8]) -> io::Result<usize> {
        use ErrorKind::{Interrupted, TimedOut, WouldBlock};
        loop {
            match stream.read(buffer, self.left()?) {
                Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => {}
                read => return read,
            }
        }
    }
}
