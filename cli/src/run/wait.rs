//! The wait for the permits, in a thread: a server that does not answer must not delay a signal.

use super::claim::{self, Claim};
use super::line;
use super::processes::HELD;
use super::report::Report;
use super::{Event, signals, thread};
use crate::address::ServerArgs;
use crate::args::PermitArgs;
use crate::ended::{Ended, UNREACHABLE};
use luagate::{Cancel, Gate, Permit, Semaphore, Ticket};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The pause between two attempts to reach the server.
pub const PAUSE: Duration = Duration::from_millis(200);

/// How long a stop or the end of this process waits for the release of its place in line.
const LEAVE: Duration = Duration::from_secs(1);

/// A wait that can be interrupted and continued.
pub struct Wait {
    turns: Sender<Turn>,
    cancel: Cancel,
    /// Of the present turn.
    has_left: Receiver<bool>,
    is_over: Arc<AtomicBool>,
}

/// A part of the wait, until it is interrupted.
struct Turn {
    cancel: Cancel,
    /// Gets a message after the release of an interrupted turn: whether the server has confirmed it.
    left: Sender<bool>,
}

impl Turn {
    fn new() -> (Turn, Cancel, Receiver<bool>) {
        let (cancel, (left, has_left)) = (Cancel::new(), mpsc::channel());
        (Turn { cancel: cancel.clone(), left }, cancel, has_left)
    }
}

impl Wait {
    /// Begins to wait. The result is an event.
    pub fn start(waiter: Waiter, events: &Sender<Event>, report: &Report) -> Result<Wait, Ended> {
        let (turns, next_turns) = mpsc::channel();
        let (first, cancel, has_left) = Turn::new();
        let _ = turns.send(first);
        let is_over: Arc<AtomicBool> = Arc::default();
        let wait = Wait { turns, cancel, has_left, is_over: is_over.clone() };
        let (events, report) = (events.clone(), report.clone());
        thread::start(move || {
            signals::block();
            let shown = Shown { report, is_started: Cell::new(false), own: Arc::default(), is_over };
            let waited = AssertUnwindSafe(|| waiter.take_turns(&next_turns, &events, &shown));
            if catch_unwind(waited).is_err() {
                let failed = Ended::new(UNREACHABLE, "the wait ended without a result");
                let _ = events.send(Event::Obtained(Err(failed)));
            }
        })?;
        Ok(wait)
    }

    /// The caller leaves the line. The result is an event.
    pub fn interrupt(&self) {
        self.cancel.cancel();
    }

    /// A stop or the end of this process also stops the release of its place or permit: waits for it, but not
    /// for long. Returns whether it is confirmed by then.
    pub fn await_left(&self) -> bool {
        self.has_left.recv_timeout(LEAVE).unwrap_or(false)
    }

    /// The caller joins the line again, at its old place.
    pub fn go_on(&mut self) {
        let (next, cancel, has_left) = Turn::new();
        (self.cancel, self.has_left) = (cancel, has_left);
        let _ = self.turns.send(next);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// The line that shows the wait.
struct Shown {
    report: Report,
    is_started: Cell<bool>,
    /// The id that waits.
    own: Arc<Mutex<String>>,
    is_over: Arc<AtomicBool>,
}

/// The caller, and the permits that it waits for.
pub struct Waiter {
    server: ServerArgs,
    args: PermitArgs,
    claims: Vec<Claim>,
    label: String,
    begun: Instant,
}

impl Waiter {
    pub fn new(server: &ServerArgs, args: PermitArgs, claims: &[Claim]) -> Result<Waiter, Ended> {
        let process = args.process.unwrap_or_else(std::process::id);
        let label = crate::label::new(args.label.as_deref(), process, args.reason.as_deref())?;
        Ok(Waiter { server: server.clone(), args, claims: claims.to_vec(), label, begun: Instant::now() })
    }

    fn take_turns(self, turns: &Receiver<Turn>, events: &Sender<Event>, shown: &Shown) {
        let (mut gate, mut ticket) = (None, None);
        for Turn { cancel, left } in turns {
            let obtained = match gate.take().map_or_else(|| self.open(&cancel), Ok) {
                Ok(opened) => self.obtain(gate.insert(opened), &cancel, &mut ticket, events, shown),
                Err(ended) => Err(ended),
            };
            if events.send(Event::Obtained(obtained)).is_err() {
                return;
            }
            if cancel.is_cancelled() {
                let _ = left.send(gate.as_ref().is_none_or(|gate| gate.flush().is_ok()));
            }
        }
    }

    /// The time that is left for the wait. `None`: without a limit. It is zero only if the caller does not
    /// wait: a wait whose time was used up by connecting asks once and is reported as a wait.
    fn left(&self) -> Option<Duration> {
        let left = |wait: Duration| wait.saturating_sub(self.begun.elapsed()).max(Duration::from_nanos(1));
        self.args.wait.map(|wait| if wait.is_zero() { wait } else { left(wait) })
    }

    /// A limit of the wait includes the time until the server can be reached.
    fn open(&self, cancel: &Cancel) -> Result<Gate, Ended> {
        loop {
            let builder = self.server.builder()?;
            let builder = match self.args.wait {
                Some(wait) if !wait.is_zero() => builder.outage_timeout(wait),
                _ => builder,
            };
            match self.server.open_with(builder) {
                Err(Ended { status: UNREACHABLE, .. })
                    if self.left().is_some_and(|left| left > PAUSE) && !cancel.is_cancelled() =>
                {
                    sleep(PAUSE);
                }
                opened => return opened,
            }
        }
    }

    /// `ticket`: of the place in line that an interrupted wait had, for one name.
    fn obtain(
        &self,
        gate: &Gate,
        cancel: &Cancel,
        ticket: &mut Option<Ticket>,
        events: &Sender<Event>,
        shown: &Shown,
    ) -> Result<Vec<Permit>, Ended> {
        // A new id for each turn: a release of the last turn may come late.
        let id = format!("{}/{}", self.label, uuid::Uuid::new_v4());
        let settings =
            claim::Settings { args: &self.args, label: &self.label, id: &id, cancel, ticket: ticket.take() };
        let lost = events.clone();
        let semaphores =
            claim::semaphores(gate, &self.claims, &settings, move || drop(lost.send(Event::Lost)));
        let may_wait = self.args.wait.is_none_or(|wait| !wait.is_zero());
        if may_wait {
            refuse_own(&semaphores)?;
        }
        if may_wait && !self.args.quiet {
            shown.own.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&id);
            if !shown.is_started.replace(true) {
                let watched = semaphores.iter().map(|(semaphore, _)| semaphore.clone()).collect();
                line::watch(watched, shown.own.clone(), shown.is_over.clone(), shown.report.clone());
            }
        }
        let _ = events.send(Event::Asks(id));
        claim::acquire(gate, &semaphores, self.left()).map_err(|error| {
            if let luagate::Error::Cancelled(cancelled) = &error {
                *ticket = cancelled.ticket;
            }
            Ended::of(error)
        })
    }
}

/// A command that runs under a permit would wait for itself if it asked for the same permit, or if it came
/// behind a waiter that cannot be granted while the command holds its permit.
fn refuse_own(semaphores: &[(Semaphore, u32)]) -> Result<(), Ended> {
    let held = std::env::var(HELD).unwrap_or_default();
    let held: Vec<&str> = held.split(' ').filter(|id| !id.is_empty()).collect();
    for (semaphore, permits) in semaphores.iter().filter(|_| !held.is_empty()) {
        let state = semaphore.inspect().map_err(Ended::of)?;
        let holders = state.holders.iter().filter(|holder| held.contains(&&*holder.id));
        let own: u32 = holders.map(|holder| holder.permits).sum();
        let fits = |permits: u32| state.limit.is_none_or(|limit| own.saturating_add(permits) <= limit);
        let why = match own {
            0 => continue,
            _ if !fits(*permits) => "it would wait for itself",
            _ if !state.waiters.iter().all(|waiter| fits(waiter.permits)) => {
                "a waiter before it waits for that permit"
            }
            _ => continue,
        };
        return Err(Ended::usage(format!(
            "this command already runs under a permit of {}, and {why}. Accepted: one `luagate run` for a name, around the \
             whole command",
            semaphore.name()
        )));
    }
    Ok(())
}
