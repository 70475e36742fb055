//! The guard: a second process that ends the command if `luagate run` cannot, because it was killed or stopped.
//!
//! `run` sends it a line with two numbers: the process id of the command, negative if it is in the foreground, and the
//! time at which it must have ended (CLOCK_BOOTTIME in ms). It sends another line for each new lease. When the command has
//! ended, `run` ends the guard. So if the input ends, `run` has died.

use super::group::Group;
use crate::ended::Ended;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The longest time between two readings of the clock: a timeout does not count the time of a suspended machine.
const LONGEST: Duration = Duration::from_secs(1);
/// The time between two looks whether a command has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A clock that also runs while the machine is suspended, and that all processes share.
fn now() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_millis() as u64)
}

/// The guard, seen from `run`.
#[derive(Default)]
pub struct Guard {
    process: Option<Child>,
    sent: u64,
}

impl Guard {
    /// Starts it. Without it, `run` works too.
    pub fn start() -> Guard {
        let program = std::env::current_exe();
        let process = program.and_then(|program| {
            // In its own group: signals from the terminal are not for it.
            Command::new(program).arg("guard").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn()
        });
        if let Err(error) = &process {
            eprintln!("luagate: no guard process: {error}. If luagate is killed, the command goes on");
        }
        Guard { process: process.ok(), sent: 0 }
    }

    /// Its process id.
    pub fn id(&self) -> Option<Pid> {
        let id = self.process.as_ref().map(Child::id)?;
        i32::try_from(id).ok().map(Pid::from_raw)
    }

    /// The group must have ended after `time`.
    pub fn watch(&mut self, group: Group, time: Duration) {
        let end = now().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        // The two clocks are read one after the other, so an end that is a little different is the same one.
        if end.abs_diff(self.sent) < 20 {
            return;
        }
        self.sent = end;
        let line = format!("{} {end}\n", if group.foreground { -group.leader.as_raw() } else { group.leader.as_raw() });
        self.send(&line);
    }

    fn send(&mut self, line: &str) {
        if let Some(input) = self.process.as_mut().and_then(|process| process.stdin.as_mut())
            && input.write_all(line.as_bytes()).is_err()
        {
            self.process = None; // somebody has ended it
        }
    }

    /// The command has ended, so the guard is ended too.
    pub fn end(self) {
        // Another part of this process may have waited for it. Then its id may be that of another process by now.
        if let Some(mut process) = self.process
            && let Ok(None) = process.try_wait()
        {
            let _ = process.kill().and_then(|()| process.wait());
        }
    }
}

/// The guard itself.
pub fn guard() -> Result<u8, Ended> {
    let (sender, lines) = mpsc::channel();
    thread::Builder::new()
        .spawn(move || io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line)))?;
    let mut watched: Option<(Group, u64)> = None;
    let mut has_died = false;
    loop {
        let left = watched.map_or(LONGEST, |(_, end)| Duration::from_millis(end.saturating_sub(now())).min(LONGEST));
        if let Some((group, _)) = watched
            && left.is_zero()
        {
            group.send(Signal::SIGKILL);
            return Ok(0);
        }
        if has_died {
            if !watched.is_some_and(|(group, _)| group.is_running()) {
                return Ok(0);
            }
            thread::sleep(left.min(LOOK));
            continue;
        }
        match lines.recv_timeout(left) {
            Ok(line) => watched = read(&line).or(watched),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                has_died = true;
                if let Some((group, _)) = watched {
                    eprintln!("luagate: `luagate run` has died; its command is ended");
                    group.send_to_stopped(Signal::SIGTERM);
                }
            }
        }
    }
}

/// The group and its end in a line of `run`.
fn read(line: &str) -> Option<(Group, u64)> {
    let (leader, end) = line.split_once(' ')?;
    let leader: i32 = leader.parse().ok()?;
    let group = Group { leader: Pid::from_raw(leader.abs()), foreground: leader < 0 };
    Some((group, end.parse().ok()?))
}
