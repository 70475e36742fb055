//! The terminal of this process, and its job control. The command stays in the process group of luagate
//! there, so Ctrl-C, Ctrl-Z, `bg` and `fg` reach both, also in a pipeline.

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgid, getpgrp, getppid, getsid, tcgetpgrp};
use std::fs::File;

pub struct Terminal {
    file: File,
    /// Its modes before the command, if this process could read from it then.
    modes: Option<Termios>,
}

impl Terminal {
    /// `None`: this process has no terminal, as in cron, in CI and in a service.
    pub fn open() -> Option<Terminal> {
        let file = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let mut terminal = Terminal { file, modes: None };
        if terminal.is_foreground() {
            terminal.modes = tcgetattr(&terminal.file).ok();
        }
        Some(terminal)
    }

    /// Whether it belongs to the process group of this process.
    pub fn is_foreground(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|group| group == getpgrp())
    }

    /// Restores the modes that a killed command, such as an editor, has left behind.
    pub fn restore(&self) {
        if let Some(modes) = &self.modes
            && self.is_foreground()
        {
            let _ = tcsetattr(&self.file, SetArg::TCSADRAIN, modes);
        }
    }
}

/// Whether no shell could continue this process after a stop: no process outside its group, in the same
/// session, is a parent of the group. Then the system stops none of its processes either. See setpgid(2).
pub fn is_orphaned() -> bool {
    let (group, session) = (getpgrp(), getsid(None));
    let mut parent = getppid();
    while parent.as_raw() > 0 && getpgid(Some(parent)) == Ok(group) {
        match super::processes::parent(parent) {
            Some(next) => parent = next,
            None => return true,
        }
    }
    parent.as_raw() == 0 || getsid(Some(parent)) != session
}
