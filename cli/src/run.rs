//! `luagate run` and `luagate try`: a command under a permit.

mod claim;
mod deadline;
mod group;
mod guard;
mod line;
mod signals;
mod tree;

pub use deadline::Deadline;
pub use guard::guard;

use crate::address::ServerArgs;
use crate::args::{PermitArgs, RunArgs};
use crate::ended::{Ended, LOST, NOT_OBTAINED};
use claim::Claim;
use clap::ArgMatches;
use deadline::Need;
use group::{Change, Group, Terminal};
use guard::Guard;
use line::Line;
use luagate::{Cancel, Permit, Released};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, SystemTime};

/// The longest time between two looks at the permits. A suspended machine is noticed after that.
const TICK: Duration = Duration::from_millis(100);

/// A jump of the clock between two looks that shows that this process did not run.
const PAUSE: Duration = Duration::from_secs(2);

/// What happens while a command waits or runs.
enum Event {
    Signal(Signal),
    ChildChanged,
    /// The wait has ended.
    Obtained(Result<Vec<Permit>, Ended>),
    /// The text that shows the wait.
    Line(String),
    /// A permit is lost.
    Lost,
}

/// Acquires permits and runs the command. Returns its exit status. `matches`: of the subcommand.
pub fn run(server: &ServerArgs, mut args: RunArgs, matches: &ArgMatches, at_once: bool) -> Result<u8, Ended> {
    let deadline = Deadline::new(args.permit.lease, args.grace).map_err(Ended::usage)?;
    args.permit.at_once |= at_once;
    let Obtained { claims, permits, events } = obtain(server, args.permit.clone(), matches)?;
    Ok(Running::start(&args, &claims, permits, deadline)?.supervise(&events))
}

/// Permits, and what happens from now on.
pub struct Obtained {
    pub claims: Vec<Claim>,
    pub permits: Vec<Permit>,
    events: Receiver<Event>,
}

impl Obtained {
    /// The only permit. From now on, a signal that ends a program ends this process, and interrupts no call of this thread.
    pub fn into_only(mut self) -> Option<(Claim, Permit)> {
        let ends = |event| match event {
            Event::Signal(signal) if signals::ends(signal) => Some(signal),
            _ => None,
        };
        thread::spawn(move || {
            let signal = self.events.iter().find_map(ends);
            signal.map(|signal| signal_hook::low_level::emulate_default_handler(signal as i32))
        });
        signals::block();
        self.claims.pop().zip(self.permits.pop())
    }
}

/// Waits for permits.
pub fn obtain(server: &ServerArgs, mut args: PermitArgs, matches: &ArgMatches) -> Result<Obtained, Ended> {
    let claims = claim::of(&args, matches)?;
    if args.at_once {
        args.wait = Some(Duration::ZERO);
    }
    let (server, builder) = (server.clone(), server.builder()?);
    let (sender, events) = mpsc::channel();
    signals::listen(sender.clone())?;
    let waiting = Waiting { args, claims, cancel: Cancel::new(), is_over: Arc::default(), events: sender };
    let waiting = Arc::new(waiting);
    let waiter = waiting.clone();
    thread::spawn(move || {
        signals::block();
        let obtained = server.open_with(builder).and_then(|gate| waiter.obtain(&gate));
        let _ = waiter.events.send(Event::Obtained(obtained));
    });
    let obtained = await_permits(&events, &waiting.cancel);
    waiting.is_over.store(true, Ordering::Release);
    let Waiting { args, claims, .. } = &*waiting;
    let permits = obtained.map_err(|ended| match ended.status {
        NOT_OBTAINED if args.quiet => Ended::silently(args.conflict_exit_code),
        NOT_OBTAINED => Ended { status: args.conflict_exit_code, ..ended },
        _ => ended,
    })?;
    Ok(Obtained { claims: claims.clone(), permits, events })
}

/// The wait for permits, in a separate thread: a call to a server that does not answer must not delay a signal.
struct Waiting {
    args: PermitArgs,
    claims: Vec<Claim>,
    cancel: Cancel,
    is_over: Arc<AtomicBool>,
    events: Sender<Event>,
}

impl Waiting {
    fn obtain(&self, gate: &luagate::Gate) -> Result<Vec<Permit>, Ended> {
        let PermitArgs { label, process, reason, .. } = &self.args;
        let process = process.unwrap_or_else(std::process::id);
        let label = crate::label::new(label.as_deref(), process, reason.as_deref())?;
        let id = format!("{label}/{}", uuid::Uuid::new_v4());
        let settings = claim::Settings { args: &self.args, label: &label, id: &id, cancel: &self.cancel };
        let lost = self.events.clone();
        let semaphores = claim::semaphores(gate, &self.claims, &settings, move || {
            let _ = lost.send(Event::Lost);
        });
        let may_wait = self.args.wait.is_none_or(|wait| !wait.is_zero());
        if may_wait && !self.args.quiet {
            let own = if semaphores.len() == 1 { id } else { label };
            let watched = semaphores.iter().map(|(semaphore, _)| semaphore.clone()).collect();
            line::watch(watched, own, self.is_over.clone(), self.events.clone());
        }
        claim::acquire(gate, &semaphores, self.args.wait)
    }
}

/// Waits for the permits. A signal that ends a program ends the wait.
fn await_permits(events: &Receiver<Event>, cancel: &Cancel) -> Result<Vec<Permit>, Ended> {
    let mut line = Line::default();
    let mut ended_by = None;
    let by_signal = |signal: Signal| Ended::silently(128 + signal as u8);
    let obtained = loop {
        match events.recv() {
            Ok(Event::Obtained(obtained)) => break obtained,
            Ok(Event::Line(text)) if ended_by.is_none() => line.show(&text),
            Ok(Event::Signal(signal)) if signals::ends(signal) => {
                line.clear();
                if ended_by.replace(signal).is_some() {
                    return Err(by_signal(signal)); // the server does not answer, so the wait does not end at once
                }
                cancel.cancel();
            }
            Ok(Event::Signal(Signal::SIGTSTP)) => {
                line.clear();
                let _ = nix::sys::signal::raise(Signal::SIGSTOP); // the place in line is kept for some seconds
            }
            Ok(_) => {}
            Err(_) => break Err(Ended::new(crate::ended::UNREACHABLE, "the wait ended without a result")),
        }
    };
    line.clear();
    match ended_by {
        None => obtained,
        // Permits that were granted in the meantime are dropped, which releases them.
        Some(signal) => Err(by_signal(signal)),
    }
}

/// Why the command was ended.
#[derive(Clone, Copy)]
enum Reason {
    Revoked,
    NotRenewed,
    Paused(Duration),
}

/// The command while it runs.
struct Running {
    group: Group,
    terminal: Terminal,
    guard: Guard,
    permits: Vec<Permit>,
    deadline: Deadline,
    names: String,
    /// Set when the command got TERM or KILL because of its permit.
    reason: Option<Reason>,
    is_lost: bool,
    last_look: SystemTime,
}

impl Running {
    fn start(args: &RunArgs, claims: &[Claim], permits: Vec<Permit>, deadline: Deadline) -> Result<Running, Ended> {
        let join = |texts: Vec<String>| texts.join(" ");
        let names = join(claims.iter().map(|claim| claim.name.name.clone()).collect());
        let variables = [
            ("LUAGATE_NAME", names.clone()),
            ("LUAGATE_ID", join(permits.iter().map(|permit| permit.id().to_owned()).collect())),
            ("LUAGATE_FENCE", join(permits.iter().map(|permit| permit.fence().to_string()).collect())),
        ];
        // Both processes start at the same time.
        let starting = thread::spawn(Guard::start);
        let spawned = Group::spawn(&args.command, &variables, args.foreground);
        let mut guard = starting.join().unwrap_or_default(); // a default guard does nothing
        let group = match spawned {
            Ok(group) => group,
            Err(ended) => {
                guard.end();
                release(permits);
                return Err(ended);
            }
        };
        guard.watch(group, deadline.until_guard(deadline::left(&permits)));
        let terminal = Terminal::give(group);
        let last_look = SystemTime::now();
        Ok(Running { group, terminal, guard, permits, deadline, names, reason: None, is_lost: false, last_look })
    }

    /// Returns the exit status, after the command has ended and the permits are released.
    fn supervise(mut self, events: &Receiver<Event>) -> u8 {
        let status = loop {
            let wait = self.look();
            match events.recv_timeout(wait) {
                Ok(Event::Signal(Signal::SIGTSTP)) => self.group.send(Signal::SIGTSTP),
                Ok(Event::Signal(signal)) if signals::ends(signal) => self.group.send_to_stopped(signal),
                Ok(Event::Signal(signal)) => self.group.send(signal),
                Ok(Event::Lost) => self.is_lost = true,
                Ok(_) | Err(_) => {} // a timeout: the thread that receives signals keeps the channel open
            }
            match self.group.change() {
                Some(Change::Ended(status)) => {
                    if status == 128 + Signal::SIGKILL as u8 {
                        self.look(); // perhaps the guard has ended it, because its permit ended
                    }
                    break status;
                }
                Some(Change::Stopped(by)) => self.stopped(by),
                None => {}
            }
        };
        self.end(status)
    }

    /// The command was stopped. Returns when it goes on, or stays stopped without the terminal.
    fn stopped(&mut self, by: Signal) {
        if self.terminal.stopped(self.group, by) {
            self.look(); // before it is continued: the permit may have ended meanwhile
            self.group.send(Signal::SIGCONT);
        }
    }

    /// Ends the command if its permit ends. Returns the time until the next look.
    fn look(&mut self) -> Duration {
        let now = SystemTime::now();
        let passed = now.duration_since(self.last_look).unwrap_or_default();
        self.last_look = now;
        let left = deadline::left(&self.permits);
        self.guard.watch(self.group, self.deadline.until_guard(left));
        let need = self.deadline.need(left);
        let reason = || match left.is_zero() {
            true if passed > PAUSE => Reason::Paused(passed),
            true if self.is_lost => Reason::Revoked,
            _ => Reason::NotRenewed,
        };
        match need {
            Need::Nothing(time) => time.min(TICK),
            Need::Term(time) => {
                if self.reason.is_none() {
                    self.reason = Some(reason());
                    self.group.send_to_stopped(Signal::SIGTERM);
                }
                time.min(TICK)
            }
            Need::Kill => {
                self.reason = self.reason.or(Some(reason()));
                self.group.send(Signal::SIGKILL);
                tree::kill_all(self.guard.id());
                TICK
            }
        }
    }

    fn end(mut self, status: u8) -> u8 {
        self.terminal.take_back();
        match self.reason {
            Some(_) => {
                tree::kill_all(self.guard.id());
                self.group.kill_leftovers();
            }
            None => self.group.end_leftovers(),
        }
        self.guard.end();
        let released = release(self.permits);
        let Some(reason) = self.reason else {
            if released == Some(Released::Gone) {
                let names = &self.names;
                eprintln!(
                    "luagate: the permit of {names} was lost before the command ended. Another one may have run at the same time"
                );
            }
            return status;
        };
        let why = match reason {
            Reason::Revoked => "it was revoked, or the server has lost it".to_owned(),
            Reason::NotRenewed => "the server was not reached in time to renew the lease".to_owned(),
            Reason::Paused(time) => format!("this process did not run for {}", crate::table::age(time)),
        };
        eprintln!("luagate: the permit of {} was lost and the command was ended: {why}", self.names);
        LOST
    }
}

/// Releases all permits. A permit that cannot be released ends with its lease. From now on this thread gets no signals.
fn release(permits: Vec<Permit>) -> Option<Released> {
    signals::block();
    let mut last = None;
    for released in Permit::release_each(permits) {
        match released {
            Ok(Released::Gone) => return Some(Released::Gone),
            Ok(released) => last = Some(released),
            Err(_) => {} // dropping the error continues in the background, within the time of a drop
        }
    }
    last
}
