//! `luagate run` and `luagate try`: a command under a permit.

mod change;
mod claim;
mod clock;
mod deadline;
pub mod guard;
mod line;
mod mark;
mod processes;
mod program;
mod report;
mod running;
mod signals;
mod start_sign;
mod terminal;
pub mod thread;
mod wait;

pub use deadline::Deadline;
pub use guard::guard;
pub use processes::launch;
pub use program::{own_program, spawn};
pub use signals::end_by;

use crate::address::ServerArgs;
use crate::args::{PermitArgs, RunArgs};
use crate::ended::{Ended, NOT_OBTAINED, UNREACHABLE};
use crate::held::Held;
use change::Change;
use claim::Claim;
use clap::ArgMatches;
use guard::Guard;
use luagate::admin::Name;
use luagate::errors::ReleaseError;
use luagate::{Permit, Released};
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::unistd::{Pid, getpgrp};
use report::Report;
use running::Running;
use std::collections::HashSet;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use terminal::Terminal;
use wait::{Wait, Waiter};

/// How long the end of this process waits for the release of a permit that it cannot use.
const RELEASE: Duration = Duration::from_secs(1);

/// What happens while a command waits or runs.
enum Event {
    Signal {
        signal: Signal,
        /// Not by a process: the command gets it too, if it is in the same process group.
        by_terminal: bool,
    },
    ChildChanged,
    /// The wait begins. Its id, if only one name is acquired.
    Asks(String),
    /// The wait has ended.
    Obtained(Result<Vec<Permit>, Ended>),
    /// A permit is lost.
    Lost,
}

/// Acquires permits and runs the command. Returns its exit status. `matches`: of the subcommand.
pub fn run(server: &ServerArgs, mut args: RunArgs, matches: &ArgMatches, at_once: bool) -> Result<u8, Ended> {
    let deadline = Deadline::new(args.permit.lease, args.grace).map_err(Ended::usage)?;
    args.permit.at_once |= at_once;
    let mut caller = Caller::new(server, &args.permit, matches)?;
    let ended = caller.obtain(server, args.permit.clone()).and_then(|(permits, is_stopped)| {
        let running = Running::start(&mut caller, &args, deadline, permits)?;
        if is_stopped {
            let _ = killpg(getpgrp(), Signal::SIGTSTP); // with the command
        }
        running.supervise()
    });
    caller.guard.end();
    let ended = ended.map_err(|Ended { status, message, signal }| {
        message.inspect(|message| caller.report.tell(message));
        Ended { status, message: None, signal }
    });
    caller.report.flush();
    ended
}

/// A permit that the guard releases if this process ends, until it is kept.
pub struct Obtained {
    pub name: Name,
    pub permit: Permit,
    guard: Guard,
}

impl Obtained {
    /// Something else releases the permit now.
    pub fn keep(self) -> Permit {
        self.guard.end();
        self.permit
    }

    /// Releases the permit. The guard continues if the server does not confirm it.
    pub fn release(mut self) {
        if self.permit.release().is_err() {
            self.guard.leave();
        }
        self.guard.end();
    }
}

/// Acquires one permit. From now on, a signal that ends a program ends this process, and interrupts no call
/// of this thread.
pub fn obtain(
    server: &ServerArgs,
    args: PermitArgs,
    matches: &ArgMatches,
) -> Result<Option<Obtained>, Ended> {
    let mut caller = Caller::new(server, &args, matches)?;
    let obtained = caller.obtain(server, args);
    let Caller { mut claims, guard, events, .. } = caller;
    let mut permits = match obtained {
        Ok((permits, _)) => permits,
        Err(ended) => {
            guard.end();
            return Err(ended);
        }
    };
    thread::start(move || {
        let ends = |event| match event {
            Event::Signal { signal, .. } if signals::ends(signal) => Some(signal),
            _ => None,
        };
        events.iter().find_map(ends).map(signals::end_by)
    })?;
    signals::block();
    let obtained = claims.pop().zip(permits.pop());
    Ok(obtained.map(|(claim, permit)| Obtained { name: claim.name, permit, guard }))
}

/// The parts that both the wait and the running command need.
struct Caller {
    claims: Vec<Claim>,
    guard: Guard,
    report: Report,
    terminal: Option<Terminal>,
    /// Whether this process stops together with the command.
    stops: Arc<AtomicBool>,
    /// Children of this process that do not belong to the command.
    others: HashSet<Pid>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl Caller {
    fn new(server: &ServerArgs, args: &PermitArgs, matches: &ArgMatches) -> Result<Caller, Ended> {
        let claims = claim::of(args, matches)?;
        server.check_files()?;
        let (sender, events) = mpsc::channel();
        let (report, stops, others) = (Report::start()?, Arc::default(), processes::children_before());
        signals::stop_if(&stops)?;
        signals::listen(sender.clone())?;
        let guard = Guard::new(server, &report);
        Ok(Caller { claims, guard, report, terminal: Terminal::open(), stops, others, sender, events })
    }

    /// Waits for the permits. Returns whether this process was to be stopped while it got them.
    fn obtain(&mut self, server: &ServerArgs, mut args: PermitArgs) -> Result<(Vec<Permit>, bool), Ended> {
        if args.at_once {
            args.wait = Some(Duration::ZERO);
        }
        let (quiet, status) = (args.quiet, args.conflict_exit_code);
        let waiter = Waiter::new(server, args, &self.claims)?;
        // Before the wait: Ctrl-Z would stop a guard that has not begun, and this process waits until it has.
        self.guard.start();
        let wait = Wait::start(waiter, &self.sender, &self.report)?;
        let obtained = self.await_permits(wait);
        self.report.end_line();
        self.report.flush(); // before the command writes to the same terminal
        obtained.map_err(|ended| match ended.status {
            NOT_OBTAINED if quiet => Ended::silently(status),
            NOT_OBTAINED => Ended { status, ..ended },
            _ => ended,
        })
    }

    /// A signal that ends a program ends the wait. One that stops it gives up the place in line until this
    /// process is continued, unless it comes too late.
    fn await_permits(&mut self, mut wait: Wait) -> Result<(Vec<Permit>, bool), Ended> {
        let (mut ended_by, mut is_stopped) = (None, false);
        loop {
            match self.events.recv() {
                Ok(Event::Signal { signal, .. }) if signals::ends(signal) => {
                    self.report.clear_line();
                    if ended_by.replace(signal).is_some() {
                        self.guard.leave(); // the server does not answer, so the wait does not end at once
                        return Err(Ended::by_signal(signal));
                    }
                    wait.interrupt();
                }
                Ok(Event::Signal { signal, .. }) if signals::stops(signal) && self.may_stop() => {
                    is_stopped = true;
                    wait.interrupt();
                }
                Ok(Event::ChildChanged) => self.reap(),
                Ok(Event::Asks(id)) => {
                    if let [claim] = &self.claims[..] {
                        self.guard.holds(vec![Held::new(&claim.name, &id)]);
                    }
                }
                Ok(Event::Obtained(obtained)) => match (ended_by, obtained) {
                    (Some(signal), Ok(permits)) => {
                        self.give_up(permits);
                        return Err(Ended::by_signal(signal));
                    }
                    (Some(signal), Err(_)) => {
                        if !wait.await_left() {
                            self.guard.leave(); // it releases what the server may have granted meanwhile
                        }
                        return Err(Ended::by_signal(signal));
                    }
                    (None, Err(Ended { status: NOT_OBTAINED, .. })) if take(&mut is_stopped) => {
                        self.report.clear_line();
                        let _ = wait.await_left();
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

    /// Releases permits. The guard continues with those that the server does not confirm.
    fn release(&mut self, permits: Vec<Permit>) -> Vec<Result<Released, ReleaseError>> {
        let released = Permit::release_each(permits);
        if released.iter().any(Result::is_err) {
            self.guard.leave();
        }
        released
    }

    fn guard_holds(&mut self, permits: &[Permit]) {
        let held = self.claims.iter().zip(permits).map(|(claim, permit)| Held::new(&claim.name, permit.id()));
        self.guard.holds(held.collect());
    }

    /// Releases permits that were granted although the wait was to end. A server that does not answer does
    /// not delay the end of this process for long: then the guard releases them.
    fn give_up(&mut self, permits: Vec<Permit>) {
        self.guard_holds(&permits);
        let (done, is_done) = mpsc::channel();
        let released = thread::start(move || {
            signals::block();
            let released = Permit::release_each(permits);
            done.send(released.iter().all(Result::is_ok))
        });
        if released.is_err() || !is_done.recv_timeout(RELEASE).unwrap_or(false) {
            self.guard.leave();
        }
    }

    /// Whether a shell can continue this process after a stop.
    fn may_stop(&self) -> bool {
        self.terminal.is_some() && !terminal::is_orphaned()
    }

    /// The signal that has ended this process before its command: all that have come so far are known when
    /// this returns.
    fn ended_by(&self) -> Option<Signal> {
        let (mut ended_by, mut others) = (None, Vec::new());
        if SigSet::thread_get_mask().is_ok_and(|blocked| blocked.contains(Signal::SIGCHLD)) {
            return None; // the caller has blocked signals, so none would come
        }
        // The signals that came before this one are events before this one, or with it: so the second one is
        // after all of them.
        for _ in 0..2 {
            let _ = raise(Signal::SIGCHLD);
            loop {
                match self.events.recv_timeout(Duration::from_secs(1)) {
                    Ok(Event::Signal { signal, .. }) if signals::ends(signal) => ended_by = Some(signal),
                    Ok(Event::ChildChanged) | Err(_) => break,
                    Ok(event) => others.push(event),
                }
            }
        }
        for event in others.into_iter().chain([Event::ChildChanged]) {
            let _ = self.sender.send(event);
        }
        ended_by
    }

    /// The next child that has changed, apart from those that do not belong to the command.
    fn changed(&mut self) -> Option<Change> {
        let change = Change::next().ok()??;
        if change.is_end() {
            self.guard.has_ended(change.child);
        }
        Some(change)
    }

    /// As the first process of a container, this one gets the children of all processes that have ended.
    fn reap(&mut self) {
        while self.changed().is_some() {}
    }
}
