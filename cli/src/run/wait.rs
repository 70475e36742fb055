//! The wait for the permits, in a thread: a server that does not answer must not delay a signal.

use super::claim::{self, Claim};
use super::line;
use super::processes::HELD;
use super::report::Report;
use super::{Event, signals};
use crate::address::ServerArgs;
use crate::args::RunArgs;
use crate::ended::{Ended, UNREACHABLE};
use luagate::{Cancel, Gate, Permit, Semaphore};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// The pause between two attempts to reach the server.
const PAUSE: Duration = Duration::from_millis(200);

/// A wait that can be interrupted and continued.
pub struct Wait {
    turns: Sender<Cancel>,
    cancel: Cancel,
    is_over: Arc<AtomicBool>,
}

impl Wait {
    /// Begins to wait. The result is an event.
    pub fn start(waiter: Waiter, events: &Sender<Event>, report: &Report) -> io::Result<Wait> {
        let (turns, next_turns) = mpsc::channel();
        let is_over: Arc<AtomicBool> = Arc::default();
        let mut wait = Wait { turns, cancel: Cancel::new(), is_over: is_over.clone() };
        wait.go_on();
        let (events, report) = (events.clone(), report.clone());
        thread::Builder::new().spawn(move || {
            signals::block();
            waiter.take_turns(&next_turns, &events, &Shown { report, is_started: Cell::new(false), is_over });
        })?;
        Ok(wait)
    }

    /// The caller leaves the line. The result is an event.
    pub fn interrupt(&self) {
        self.cancel.cancel();
    }

    /// The caller joins the line again, at its old place.
    pub fn go_on(&mut self) {
        self.cancel = Cancel::new();
        let _ = self.turns.send(self.cancel.clone());
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
    is_over: Arc<AtomicBool>,
}

/// Who waits, and for what.
pub struct Waiter {
    pub server: ServerArgs,
    pub args: RunArgs,
    pub claims: Vec<Claim>,
    pub label: String,
    /// The id, if only one name is acquired.
    pub id: String,
    pub begun: Instant,
}

impl Waiter {
    fn take_turns(self, turns: &Receiver<Cancel>, events: &Sender<Event>, shown: &Shown) {
        let mut gate = None;
        for cancel in turns {
            let obtained = match gate.take().map_or_else(|| self.open(&cancel), Ok) {
                Ok(opened) => self.obtain(gate.insert(opened), &cancel, events, shown),
                Err(ended) => Err(ended),
            };
            if events.send(Event::Obtained(obtained)).is_err() {
                return;
            }
        }
    }

    /// The time that is left for the wait. `None`: without a limit.
    fn left(&self) -> Option<Duration> {
        self.args.wait.map(|wait| wait.saturating_sub(self.begun.elapsed()))
    }

    /// A limit of the wait includes the time until the server can be reached.
    fn open(&self, cancel: &Cancel) -> Result<Gate, Ended> {
        loop {
            let builder = self.server.builder()?;
            let builder = match self.args.wait {
                Some(wait) if !wait.is_zero() => builder.outage(wait),
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

    fn obtain(
        &self,
        gate: &Gate,
        cancel: &Cancel,
        events: &Sender<Event>,
        shown: &Shown,
    ) -> Result<Vec<Permit>, Ended> {
        let settings = claim::Settings { args: &self.args, label: &self.label, id: &self.id, cancel };
        let lost = events.clone();
        let semaphores = claim::semaphores(gate, &self.claims, &settings, move || drop(lost.send(Event::Lost)));
        let may_wait = self.args.wait.is_none_or(|wait| !wait.is_zero());
        if may_wait {
            refuse_own(&semaphores)?;
        }
        if may_wait && !self.args.quiet && !shown.is_started.replace(true) {
            let own = if semaphores.len() == 1 { &self.id } else { &self.label };
            let watched = semaphores.iter().map(|(semaphore, _)| semaphore.clone()).collect();
            line::watch(watched, own.clone(), shown.is_over.clone(), shown.report.clone());
        }
        claim::acquire(gate, &semaphores, self.left())
    }
}

/// A command that runs under a permit would wait for itself if it asked for the same permit.
fn refuse_own(semaphores: &[(Semaphore, u32)]) -> Result<(), Ended> {
    let held = std::env::var(HELD).unwrap_or_default();
    let held: Vec<&str> = held.split(' ').filter(|id| !id.is_empty()).collect();
    for (semaphore, permits) in semaphores.iter().filter(|_| !held.is_empty()) {
        let state = semaphore.inspect().map_err(Ended::of)?;
        let holders = state.holders.iter().filter(|holder| held.contains(&&*holder.id));
        let own: u32 = holders.map(|holder| holder.permits).sum();
        if own > 0 && state.limit.is_some_and(|limit| own.saturating_add(*permits) > limit) {
            return Err(Ended::usage(format!(
                "this command already runs under a permit of {}, so it would wait for itself. Accepted: one `luagate run` \
                 for a name, around the whole command",
                semaphore.name()
            )));
        }
    }
    Ok(())
}
