//! The guard: a second process that ends the command if `luagate run` cannot, because it was killed or stopped.
//!
//! `run` sends it a line with two numbers, the process id of the command and when it must have ended (CLOCK_BOOTTIME in
//! ms); and again for each new lease. At the end of its input without the line `done`, `run` has died.

use super::group::Group;
use crate::ended::Ended;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A clock that also runs while the machine is suspended, and that all processes share.
fn now() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_millis() as u64)
}

/// The guard, seen from `run`.
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

    /// The command has ended.
    pub fn end(mut self) {
        self.send("done\n");
        if let Some(mut process) = self.process {
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

/// The guard itself.
pub fn guard() -> Result<u8, Ended> {
    let mut input = io::stdin().lock();
    let mut watched: Option<(Group, u64)> = None;
    let mut is_input_over = false;
    loop {
        let left = watched.map(|(_, end)| end.saturating_sub(now()));
        if let (Some((group, _)), Some(0)) = (watched, left) {
            group.send(Signal::SIGKILL);
            return Ok(0);
        }
        if is_input_over {
            let Some((group, _)) = watched.filter(|(group, _)| is_alive(*group)) else { return Ok(0) };
            let _ = group;
            std::thread::sleep(Duration::from_millis(left.unwrap_or_default().min(50)));
            continue;
        }
        let timeout =
            left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left.min(1_000)).unwrap_or(PollTimeout::ZERO));
        if poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], timeout).is_ok_and(|ready| ready == 0) {
            continue;
        }
        let mut line = String::new();
        let read = input.read_line(&mut line)?;
        if line.trim() == "done" {
            return Ok(0);
        }
        let mut numbers = line.split_whitespace().map(str::parse::<i64>);
        if let (Some(Ok(leader)), Some(Ok(end))) = (numbers.next(), numbers.next()) {
            let group = Group { leader: Pid::from_raw(leader.unsigned_abs() as i32), foreground: leader < 0 };
            watched = Some((group, end as u64));
        }
        if read == 0 {
            is_input_over = true;
            if let Some((group, _)) = watched {
                eprintln!("luagate: `luagate run` has died; its command is ended");
                group.send_to_stopped(Signal::SIGTERM);
            }
        }
    }
}

fn is_alive(group: Group) -> bool {
    match group.foreground {
        true => nix::sys::signal::kill(group.leader, None).is_ok(),
        false => group.is_left(),
    }
}
