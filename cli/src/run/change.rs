//! A change of a child process, of every signal that there is: `nix` knows no real-time signals.

use nix::unistd::Pid;
use rustix::io::{Errno, Result};
use rustix::process::{WaitOptions, wait, waitpid};

#[derive(Clone, Copy)]
pub struct Change {
    pub child: Pid,
    pub how: How,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    Exited(u8),
    /// By the signal of this number.
    Killed(i32),
    Stopped(i32),
    Continued,
}

/// Blocks until this child has ended.
pub fn await_end(child: Pid) {
    if let Some(child) = rustix::process::Pid::from_raw(child.as_raw()) {
        let _ = waitpid(Some(child), WaitOptions::empty());
    }
}

impl Change {
    /// The next one that has happened. `None`: nothing has changed. An error: there is no child.
    pub fn next() -> Result<Option<Change>> {
        loop {
            let changed = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Err(Errno::INTR) => continue,
                changed => changed?,
            };
            return Ok(changed.map(|(child, status)| {
                let how = match (status.exit_status(), status.terminating_signal(), status.stopping_signal())
                {
                    (Some(status), ..) => How::Exited(status as u8),
                    (_, Some(signal), _) => How::Killed(signal),
                    (.., Some(signal)) => How::Stopped(signal),
                    _ => How::Continued,
                };
                Change { child: Pid::from_raw(child.as_raw_nonzero().get()), how }
            }));
        }
    }

    pub fn is_end(self) -> bool {
        matches!(self.how, How::Exited(_) | How::Killed(_))
    }
}
