//! `luagate run` and `luagate try`: a command under a permit.

mod claim;
mod clock;
mod deadline;
mod guard;
mod line;
mod processes;
mod report;
mod running;
mod signals;
mod terminal;
mod wait;

pub use guard::guard;
pub use processes::launch;
pub use signals::end_by;

use crate::address::ServerArgs;
use crate::args::RunArgs;
use crate::ended::{Ended, NOT_OBTAINED, UNREACHABLE};
use claim::Claim;
use clap::ArgMatches;
use deadline::Deadline;
use guard::{Guard, Held};
use luagate::Permit;
use nix::sys::signal::{Signal, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::getpgrp;
use report::Report;
use running::Running;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use terminal::Terminal;
use wait::{Wait, Waiter};

/// What happens while a command waits or runs.
enum Event {
    Signal {
        signal: Signal,
        /// Not by a process: the command gets it too, if it is in the same process group.
        by_terminal: bool,
    },
    ChildChanged,
    /// The wait has ended.
    Obtained(Result<Vec<Permit>, Ended>),
    /// A permit is lost.
    Lost,
}

/// Acquires permits and runs the command. Returns its exit status. `matches`: of the subcommand.
pub fn run(server: &ServerArgs, mut args: RunArgs, matches: &ArgMatches, at_once: bool) -> Result<u8, Ended> {
    let claims = claim::of(&args, matches)?;
    let deadline = Deadline::new(args.lease, args.grace).map_err(Ended::usage)?;
    if at_once || args.at_once {
        args.wait = Some(Duration::ZERO);
    }
    let _ = server.builder()?; // reports a file that cannot be read
    let report = Report::start()?;
    let (guard, terminal, stops) = (Guard::start(server, &report), Terminal::open(), Arc::default());
    let mut run = Run { args, claims, deadline, guard, report, terminal, stops };
    let ended = run.wait_and_execute(server);
    run.guard.end();
    let ended = ended.map_err(|Ended { status, message, signal }| {
        message.inspect(|message| run.report.tell(message));
        Ended { status, message: None, signal }
    });
    run.report.flush();
    ended
}

/// What both the wait and the running command need.
struct Run {
    args: RunArgs,
    claims: Vec<Claim>,
    deadline: Deadline,
    guard: Guard,
    report: Report,
    terminal: Option<Terminal>,
    /// Whether this process stops together with the command.
    stops: Arc<AtomicBool>,
}

impl Run {
    fn wait_and_execute(&mut self, server: &ServerArgs) -> Result<u8, Ended> {
        let (sender, events) = mpsc::channel();
        signals::stop_if(&self.stops)?;
        signals::listen(sender.clone())?;
        let label = self.args.label.clone().unwrap_or_else(default_label);
        let id = format!("{label}/{}", uuid::Uuid::new_v4());
        if let [claim] = &self.claims[..] {
            self.guard.holds(vec![Held::new(&claim.name, &id)]);
        }
        let (server, args, claims) = (server.clone(), self.args.clone(), self.claims.clone());
        let waiter = Waiter { server, args, claims, label, id, begun: Instant::now() };
        let wait = Wait::start(waiter, &sender, &self.report)?;
        let obtained = self.await_permits(wait, &events);
        self.report.end_line();
        let (permits, is_stopped) = obtained.map_err(|ended| match ended.status {
            NOT_OBTAINED if self.args.quiet => Ended::silently(self.args.conflict_exit_code),
            NOT_OBTAINED => Ended { status: self.args.conflict_exit_code, ..ended },
            _ => ended,
        })?;
        let running = Running::start(self, permits)?;
        if is_stopped {
            let _ = killpg(getpgrp(), Signal::SIGTSTP); // with the command
        }
        running.supervise(&events)
    }

    /// Waits for the permits. A signal that ends a program ends the wait. One that stops it gives up the place in line until
    /// this process is continued. Returns whether it came too late: then the command is to be stopped.
    fn await_permits(&mut self, mut wait: Wait, events: &Receiver<Event>) -> Result<(Vec<Permit>, bool), Ended> {
        let (mut ended_by, mut is_stopped) = (None, false);
        loop {
            match events.recv() {
                Ok(Event::Signal { signal, .. }) if signals::ends(signal) => {
                    self.report.clear_line();
                    if ended_by.replace(signal).is_some() {
                        return Err(Ended::by_signal(signal)); // the server does not answer, so the wait does not end at once
                    }
                    wait.interrupt();
                }
                Ok(Event::Signal { signal, .. }) if signals::stops(signal) && self.may_stop() => {
                    is_stopped = true;
                    wait.interrupt();
                }
                Ok(Event::ChildChanged) => self.reap(),
                // Permits that were granted in the meantime are dropped, which releases them.
                Ok(Event::Obtained(obtained)) => match (ended_by, obtained) {
                    (Some(signal), _) => return Err(Ended::by_signal(signal)),
                    (None, Err(Ended { status: NOT_OBTAINED, .. })) if take(&mut is_stopped) => {
                        self.report.clear_line();
                        let _ = raise(Signal::SIGSTOP);
                        wait.go_on();
                    }
                    (None, obtained) => return Ok((obtained?, is_stopped)),
                },
                Ok(Event::Signal { .. } | Event::Lost) => {}
                Err(_) => return Err(Ended::new(UNREACHABLE, "the wait ended without a result")),
            }
        }
    }

    /// Whether a shell can continue this process after a stop.
    fn may_stop(&self) -> bool {
        self.terminal.is_some() && !terminal::is_orphaned()
    }

    /// The next child that has changed, apart from those that do not belong to the command.
    fn changed(&mut self) -> Option<WaitStatus> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        loop {
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::StillAlive) => return None,
                Ok(status @ (WaitStatus::Exited(child, _) | WaitStatus::Signaled(child, ..))) => {
                    self.guard.has_ended(child);
                    return Some(status);
                }
                Ok(status) => return Some(status),
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// As the first process of a container, this one gets the children of all processes that have ended.
    fn reap(&mut self) {
        while self.changed().is_some() {}
    }
}

/// The machine and the process, so that an operator finds them.
fn default_label() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host: String = host.to_string_lossy().chars().filter(|c| c.is_ascii_graphic()).take(100).collect();
    format!("{}:{}", if host.is_empty() { "host" } else { &host }, std::process::id())
}
