//! The guard: a second process that ends the command if `luagate run` cannot, because it was killed or
//! stopped.
//!
//! `run` starts it before the wait, and sends it lines: which permits it asks for, which processes the
//! command has, and when they must have ended. The input ends if `run` has died, or has left a release to the
//! guard. Then the guard ends what is left of the command, and releases the permits once no process of it is
//! left.

pub mod lines;

use super::change;
use super::clock::now;
use super::processes::{Found, Processes};
use super::program::{own_program, spawn};
use super::report::Report;
use super::wait::PAUSE;
use crate::address::ServerArgs;
use crate::ended::{Ended, UNREACHABLE};
use crate::held::Held;
use lines::{Line, Lines};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, dup2_stderr, read, setsid};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time between two readings of the clock: a timeout does not count the time of a suspended
/// machine.
const LONGEST: Duration = Duration::from_secs(1);
/// The time between two looks whether the command has ended.
const COMMAND_CHECK: Duration = Duration::from_millis(20);
/// The shortest time between two starts of a guard.
const RESTART: Duration = Duration::from_secs(1);
/// How long it tries to release, as a gate does for a permit that is dropped.
const RELEASE: Duration = Duration::from_secs(30);
/// A difference of two ends that comes from reading two clocks one after the other.
const SAME: Duration = Duration::from_millis(20);

/// The guard, seen from `run`.
pub struct Guard {
    server: ServerArgs,
    report: Report,
    process: Option<(Pid, ChildStdin)>,
    started: Instant,
    held: Vec<Held>,
    processes: Option<Processes>,
    sent: Duration,
}

impl Guard {
    pub fn new(server: &ServerArgs, report: &Report) -> Guard {
        let (server, report, started) = (server.clone(), report.clone(), Instant::now());
        Guard {
            server,
            report,
            process: None,
            started,
            held: Vec::new(),
            processes: None,
            sent: Duration::ZERO,
        }
    }

    pub fn start(&mut self) {
        self.started = Instant::now();
        let spawned = own_program().and_then(|mut program| {
            program.arg("guard").stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = spawn(&mut program, SigSet::all())?; // only KILL ends it, from its beginning
            let id = Pid::from_raw(child.id() as i32);
            let input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            // If the guard is stopped, its pipe may become full. This process does not wait for it.
            fcntl(&input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            Ok((id, input))
        });
        match spawned {
            Ok((id, input)) => {
                self.process = Some((id, input));
                self.sent = Duration::ZERO;
                let lines = [Line::Server(self.server.resolved()), Line::Held(self.held.clone())]
                    .into_iter()
                    .chain(self.processes.clone().map(Line::Started));
                lines.for_each(|line| drop(self.send(&line)));
            }
            Err(error) => self.report.tell(format!(
                "no guard process: {error}. If luagate is killed, nothing ends its command or releases its permit"
            )),
        }
    }

    /// A child of this process has ended. If it was the guard, another one is started.
    pub fn has_ended(&mut self, child: Pid) {
        if self.process.take_if(|(id, _)| *id == child).is_some() {
            self.report.tell("the guard process has ended. Another one is started");
        }
        self.restart();
    }

    /// Starts another one unless one runs.
    pub fn restart(&mut self) {
        if self.process.is_none() && self.started.elapsed() >= RESTART {
            self.start();
        }
    }

    /// It releases these if this process dies.
    pub fn holds(&mut self, held: Vec<Held>) {
        let _ = self.send(&Line::Held(held.clone()));
        self.held = held;
    }

    pub fn watches(&mut self, processes: &Processes) {
        let _ = self.send(&Line::Started(processes.clone()));
        self.processes = Some(processes.clone());
    }

    /// The processes must have ended after `left`.
    pub fn ends_in(&mut self, left: Duration, grace: Duration) {
        let at = now().saturating_add(left);
        if at.abs_diff(self.sent) > SAME && self.send(&Line::Ends { at, grace }).is_ok() {
            self.sent = at;
        }
    }

    fn send(&mut self, line: &Line) -> io::Result<()> {
        let (_, input) = self.process.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(line.written()?.as_bytes())
    }

    /// Nothing ends it, so it releases the permits when this process has ended.
    pub fn leave(&mut self) {
        self.process = None;
    }

    /// The command has ended, so the guard is ended too.
    pub fn end(self) {
        if let Some((id, _)) = self.process
            && kill(id, Signal::SIGKILL).is_ok()
        {
            change::await_end(id);
        }
    }
}

/// The guard itself.
pub fn guard() -> Result<u8, Ended> {
    let _ = setsid(); // signals from the terminal are not for it
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = nix::sys::prctl::set_name(super::processes::GUARD);
    let report = Report::start()?;
    let mut input = Input { stdin: io::stdin(), lines: Lines::default() };
    let (mut server, mut held, mut processes, mut end) = (None, Vec::new(), None::<Processes>, None);
    loop {
        let left = end.map_or(LONGEST, |(at, _): (Duration, Duration)| at.saturating_sub(now()).min(LONGEST));
        match input.next(left) {
            Next::Line(Line::Server(address)) => server = Some(address),
            Next::Line(Line::Held(names)) => held = names,
            Next::Line(Line::Started(started)) => processes = Some(started),
            Next::Line(Line::Ends { at, grace }) => end = Some((at, grace)),
            Next::Nothing if end.is_some_and(|(at, _)| at <= now()) => {
                processes.take().inspect(|processes| drop(processes.kill()));
                (held, end) = (Vec::new(), None);
            }
            Next::Nothing => {}
            Next::End => break,
        }
    }
    let all_have_ended = processes.is_none_or(|mut processes| {
        processes.lose_owner();
        end_all(&processes, end.unwrap_or_default(), &report)
    });
    report.flush();
    let _ = File::open("/dev/null").map(dup2_stderr); // a pipeline does not wait for the release
    if let Some(server) = server.filter(|_| all_have_ended) {
        release(&server, held);
    }
    Ok(0)
}

/// Sends TERM, and KILL after `grace`, but at `at` at the latest. Returns whether none is left before that.
fn end_all(processes: &Processes, (at, grace): (Duration, Duration), report: &Report) -> bool {
    let kill_at = at.min(now().saturating_add(grace));
    // A process that was found once stays known: some are found only as long as their parents are there.
    let find = || processes.find().into_iter().filter_map(Found::of);
    let mut known: HashSet<Found> = find().collect();
    if known.iter().any(|process| process.is_there()) {
        report.tell("`luagate run` has died; its command is ended");
    }
    processes.terminate();
    loop {
        known.extend(find());
        known.retain(|process| process.is_there());
        if known.is_empty() {
            return true;
        }
        let now = now();
        if now >= kill_at {
            processes.kill();
            known.iter().for_each(|process| process.kill());
        }
        if now >= at {
            return false;
        }
        thread::sleep(COMMAND_CHECK);
    }
}

/// Releases the permits, and leaves the line. Tries again while the server cannot be reached.
fn release(server: &ServerArgs, mut held: Vec<Held>) {
    let begun = Instant::now();
    while !held.is_empty() && begun.elapsed() < RELEASE {
        match server.open() {
            Ok(gate) => held.retain(|permit| {
                let revoked =
                    permit.semaphore(&gate).map(|semaphore| semaphore.revoke(&permit.id).map_err(Ended::of));
                matches!(revoked, Some(Err(Ended { status: UNREACHABLE, .. })))
            }),
            Err(Ended { status: UNREACHABLE, .. }) => {}
            Err(_) => return,
        }
        if !held.is_empty() {
            thread::sleep(PAUSE);
        }
    }
}

/// The lines of `run`.
struct Input {
    stdin: io::Stdin,
    lines: Lines,
}

enum Next {
    Line(Line),
    /// No line within the time.
    Nothing,
    End,
}

impl Input {
    /// All lines that have arrived are read before a deadline counts: several may have piled up.
    fn next(&mut self, within: Duration) -> Next {
        loop {
            if let Some(line) = self.lines.next() {
                return Next::Line(line);
            }
            let within = PollTimeout::try_from(within).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(self.stdin.as_fd(), PollFlags::POLLIN)], within) {
                Ok(0) => return Next::Nothing,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return Next::End,
            }
            let mut bytes = [0; 4_096];
            match read(&self.stdin, &mut bytes) {
                Ok(0) => return Next::End,
                Ok(count) => self.lines.push(&bytes[..count]),
                Err(Errno::EINTR) => {}
                Err(_) => return Next::End,
            }
        }
    }
}
