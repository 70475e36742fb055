//! The command: its process group, its signals, and the terminal.

use crate::address::HIDDEN_URL;
use crate::ended::{Ended, NOT_EXECUTABLE, NOT_FOUND};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getpid, tcgetpgrp, tcsetpgrp};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the processes that a command leaves behind have after TERM.
const LEFTOVERS: Duration = Duration::from_secs(1);

/// A change of the state of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has ended, with this exit status.
    Ended(u8),
    Stopped(Signal),
}

/// The processes of the command.
#[derive(Clone, Copy)]
pub struct Group {
    /// The command itself, and its process group unless it is in the foreground.
    pub leader: Pid,
    /// The command is in the process group of luagate. Then only the command itself gets signals.
    pub foreground: bool,
}

impl Group {
    /// Starts the command.
    pub fn spawn(command: &[OsString], variables: &[(&str, String)], foreground: bool) -> Result<Group, Ended> {
        let [program, arguments @ ..] = command else {
            return Err(Ended::usage("no COMMAND"));
        };
        let mut process = Command::new(program);
        process.args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
        process.env_remove(HIDDEN_URL);
        if !foreground {
            process.process_group(0);
        }
        // The processes that the command leaves behind become children of this process, so it knows when they have ended.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let child = process.spawn().map_err(|error| {
            let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
            Ended::new(status, format!("cannot run {}: {error}", program.display()))
        })?;
        Ok(Group { leader: Pid::from_raw(child.id() as i32), foreground })
    }

    /// Sends a signal. Does nothing if no process is left.
    pub fn send(self, signal: Signal) {
        let _ = if self.foreground { kill(self.leader, signal) } else { killpg(self.leader, signal) };
    }

    /// As `send`, and continues processes that are stopped, so that they notice it.
    pub fn send_to_stopped(self, signal: Signal) {
        self.send(signal);
        self.send(Signal::SIGCONT);
    }

    /// The next change of the command, if there was one. Also waits for processes that the command has left behind.
    pub fn change(self) -> Option<Change> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
                Ok(status) if status.pid() == Some(self.leader) => match status {
                    WaitStatus::Exited(_, status) => return Some(Change::Ended(status as u8)),
                    WaitStatus::Signaled(_, signal, _) => return Some(Change::Ended(128 + signal as u8)),
                    WaitStatus::Stopped(_, signal) => return Some(Change::Stopped(signal)),
                    _ => {}
                },
                Ok(WaitStatus::StillAlive) => return None,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return Some(Change::Ended(NOT_EXECUTABLE)), // no child is left: impossible before its end
            }
        }
    }

    /// Whether a process of the group is left, apart from the command itself after its end.
    pub fn is_left(self) -> bool {
        // A process that has ended is left until its parent has waited for it.
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
        !self.foreground && killpg(self.leader, None).is_ok()
    }

    /// Whether the command, or a process of its group, is left.
    pub fn is_running(self) -> bool {
        if self.foreground { kill(self.leader, None).is_ok() } else { self.is_left() }
    }

    /// Ends the processes that the command has left in its group: TERM, and KILL a second later. Returns when they have
    /// ended.
    pub fn end_leftovers(self) {
        if !self.is_left() {
            return;
        }
        self.send_to_stopped(Signal::SIGTERM);
        if !self.is_over_within(LEFTOVERS) {
            self.kill_leftovers();
        }
    }

    /// As `end_leftovers`, with KILL at once.
    pub fn kill_leftovers(self) {
        self.send(Signal::SIGKILL);
        self.is_over_within(LEFTOVERS); // the system cannot end a process while, for example, a disk does not answer
    }

    fn is_over_within(self, time: Duration) -> bool {
        let begun = Instant::now();
        while self.is_left() {
            if begun.elapsed() >= time {
                return false;
            }
            sleep(Duration::from_millis(1));
        }
        true
    }
}

/// The terminal that the command uses. Only one process group may read from it.
pub struct Terminal {
    is_given: bool,
}

impl Terminal {
    /// Gives the terminal to the command if this process has it. If the output goes to another program, such as `less`, that
    /// program needs the terminal.
    pub fn give(group: Group) -> Terminal {
        let stdin = io::stdin();
        let is_used = stdin.is_terminal() && io::stdout().is_terminal();
        let is_own = || tcgetpgrp(&stdin).is_ok_and(|owner| owner == getpgrp());
        let is_given = !group.foreground && is_used && is_own() && pass_to(group.leader);
        Terminal { is_given }
    }

    /// The command was stopped, for example with Ctrl-Z. Stops this process too, so that the shell continues, and returns
    /// when it is continued. `true`: the command must be continued.
    ///
    /// Meanwhile nothing renews the lease. All processes of the group are stopped, so none of them works after its end.
    pub fn stopped(&mut self, group: Group, by: Signal) -> bool {
        let wanted_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if !self.is_given {
            if wanted_terminal {
                eprintln!("luagate: the command was stopped because it wants the terminal. Run it with --foreground");
            }
            return false;
        }
        let stdin = io::stdin();
        if wanted_terminal && tcgetpgrp(&stdin).is_ok_and(|owner| owner == group.leader) {
            return true; // it began to read before it got the terminal
        }
        group.send(Signal::SIGSTOP);
        pass_to(getpgrp());
        let _ = kill(getpid(), Signal::SIGSTOP);
        // Continued: in the foreground by `fg`, or in the background by `bg`.
        if tcgetpgrp(&stdin).is_ok_and(|owner| owner == getpgrp()) {
            pass_to(group.leader);
        }
        true
    }

    /// Takes the terminal back.
    pub fn take_back(&mut self) {
        if std::mem::take(&mut self.is_given) {
            pass_to(getpgrp());
        }
    }
}

/// Passes the terminal to this process group. From the background this is allowed only while SIGTTOU is blocked.
fn pass_to(group: Pid) -> bool {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let _ = blocked.thread_block();
    let passed = tcsetpgrp(io::stdin(), group).is_ok();
    let _ = blocked.thread_unblock();
    passed
}
