//! The terminal: it is restored at the end, and `top` ends with it.

use crate::ended::Ended;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The time between two looks whether the terminal has gone.
const TERMINAL_CHECK: Duration = Duration::from_millis(200);
/// How long the screen may take to end after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// A screen that is restored at the end, also after an error. After a panic, the hook of ratatui has restored
/// it. The screen of ratatui itself is not dropped: that panics if the terminal has gone.
pub struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    pub fn new() -> Result<Screen, Ended> {
        let screen = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()));
        Ok(Screen(ManuallyDrop::new(screen?)))
    }
}

impl Deref for Screen {
    type Target = DefaultTerminal;

    fn deref(&self) -> &DefaultTerminal {
        &self.0
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut DefaultTerminal {
        &mut self.0
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = self.0.show_cursor();
            let _ = ratatui::try_restore();
        }
    }
}

/// What ends `top` besides a key.
#[derive(Clone)]
pub struct End {
    terminal: Arc<OwnedFd>,
    /// The last signal that asks this process to end, or 0.
    signal: Arc<AtomicUsize>,
}

impl End {
    /// Watches for signals and the end of the terminal. A separate thread ends the process if the screen does
    /// not end soon: crossterm reads a terminal that has gone again and again, and waits for the rest of an
    /// escape sequence.
    pub fn watch() -> Result<End, Ended> {
        // As crossterm chooses it.
        let stdin = io::stdin();
        let terminal = if stdin.is_terminal() {
            stdin.as_fd().try_clone_to_owned()?
        } else if let Ok(file) = File::open("/dev/tty") {
            file.into()
        } else {
            return Err(Ended::usage("top: no terminal for keys. Print the table once with --once"));
        };
        let end = End { terminal: Arc::new(terminal), signal: Arc::default() };
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, end.signal.clone(), number)?;
        }
        let watched = end.clone();
        thread::Builder::new().name("luagate-end".to_owned()).spawn(move || watched.force())?;
        Ok(end)
    }

    /// The exit status, if `top` has to end.
    pub fn status(&self) -> Option<u8> {
        match self.signal.load(Ordering::Relaxed) {
            0 => self.terminal_has_gone().then_some(128 + SIGHUP as u8),
            signal => u8::try_from(128 + signal).ok(),
        }
    }

    fn terminal_has_gone(&self) -> bool {
        let mut polled = [PollFd::new(self.terminal.as_fd(), PollFlags::empty())];
        let is_polled = poll(&mut polled, PollTimeout::ZERO).is_ok();
        let [found] = polled;
        is_polled && found.revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }

    fn force(&self) {
        loop {
            thread::sleep(TERMINAL_CHECK);
            if let Some(status) = self.status() {
                if !self.terminal_has_gone() {
                    thread::sleep(GRACE);
                }
                let _ = ratatui::try_restore();
                std::process::exit(status.into());
            }
        }
    }
}
