//! The thread that reads the server.

use super::detail::Detail;
use super::model::Report;
use super::plan::{self, Plan, Work};
use crate::ended::Ended;
use crate::manage::describe_revoked;
use crate::sample::{self, Sample};
use crate::unreadable::{self, Unreadable};
use crate::words;
use luagate::Gate;
use luagate::admin::Names;
use luagate::admin::{self, Name};
use luagate::errors::CallError;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The most holders, and the most waiters, that are read of a row.
const PAGE: u32 = 100;
/// The same of the opened name.
const PAGE_OPENED: u32 = 1_000;
/// The most reports that wait for the screen. Then the thread waits too.
const REPORTS: usize = 10_000;
/// The pause after a failure.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// The pause if nothing is due.
const IDLE: Duration = Duration::from_millis(20);
/// A request of the screen.
pub enum Wish {
    /// These rows are on the screen, and this name is opened.
    Show { visible: Vec<Name>, opened: Option<Name> },
    /// Take away what `id` has.
    Revoke { name: Name, id: String },
}

/// A search that has begun.
struct Search {
    names: Names,
    found: Vec<Name>,
    begun: Instant,
    /// How long the server worked for it, at most.
    busy: Duration,
}

struct Reader {
    gate: Gate,
    filter: sample::NameFilter,
    plan: Plan,
    search: Option<Search>,
    wishes: Receiver<Wish>,
    reports: SyncSender<Report>,
    has_failed: bool,
}

/// The screen is closed.
struct Closed;

/// Starts the thread. It ends after the returned sender was dropped.
pub fn start(
    gate: Gate,
    filter: sample::NameFilter,
    interval: Duration,
) -> Result<(Sender<Wish>, Receiver<Report>), Ended> {
    let (wish, wishes) = channel();
    let (reports, report) = sync_channel(REPORTS);
    let plan = Plan::new(interval, Instant::now());
    let reader = Reader { gate, filter, plan, search: None, wishes, reports, has_failed: false };
    thread::Builder::new().name("luagate-top".to_owned()).spawn(move || reader.run())?;
    Ok((wish, report))
}

impl Reader {
    fn run(mut self) {
        let mut due = Instant::now();
        while let Ok(()) = self.wait(due) {
            let work = self.plan.next(Instant::now());
            if work == Work::Nothing {
                due = Instant::now() + IDLE;
                continue;
            }
            let begun = Instant::now();
            let done = self.carry_out(work);
            let took = begun.elapsed();
            let pause = match done {
                Ok((report, entries)) => {
                    let sent = report.is_none_or(|report| self.reports.send(report).is_ok());
                    if !sent {
                        return;
                    }
                    if std::mem::take(&mut self.has_failed) {
                        self.plan.search_soon(Instant::now());
                    }
                    plan::pause(took, entries)
                }
                Err(error) => {
                    self.has_failed = true;
                    if self.reports.send(Report::Failed(words::of(error))).is_err() {
                        return;
                    }
                    AFTER_FAILURE
                }
            };
            due = Instant::now() + pause;
        }
    }

    /// Waits until then, and does what the screen asks for meanwhile.
    fn wait(&mut self, due: Instant) -> Result<(), Closed> {
        loop {
            match self.wishes.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Wish::Show { visible, opened }) => self.plan.show(visible, opened, Instant::now()),
                Ok(Wish::Revoke { name, id }) => {
                    let text = self.revoke(&name, &id);
                    self.reports.send(Report::Revoked(text)).map_err(|_| Closed)?;
                    self.plan.open_again(Instant::now());
                }
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Closed),
            }
        }
    }

    fn revoke(&self, name: &Name, id: &str) -> String {
        match admin::semaphore(&self.gate, name).revoke(id) {
            Ok(revoked) => describe_revoked(name, id, revoked).unwrap_or_else(|nothing| nothing),
            Err(error) => format!("revoke {id}: {}", first_line(&error)),
        }
    }

    /// Returns the report, and how many holders and waiters the server has listed.
    fn carry_out(&mut self, work: Work) -> Result<(Option<Report>, usize), CallError> {
        let (name, is_opened) = match work {
            Work::Nothing => return Ok((None, 0)),
            Work::Search => return Ok((Some(self.step()?), 0)),
            Work::Read(name) => (name, false),
            Work::Open(name) => (name, true),
        };
        let page = if is_opened { PAGE_OPENED } else { PAGE };
        let state = match unreadable::inspect(&self.gate, &name, 0, page)? {
            Ok(state) => state,
            Err(Unreadable { name, error }) => {
                return Ok((Some(Report::Unreadable(name, first_line(&error))), 0));
            }
        };
        let entries = state.holders.len() + state.waiters.len();
        let report = if is_opened {
            let detail = Detail::of(&name, &state);
            Report::Opened(name, detail)
        } else {
            let sample = Sample::of(&name, &state);
            Report::Read(name, sample)
        };
        Ok((Some(report), entries))
    }

    /// Does one step of a search. An error ends the search.
    fn step(&mut self) -> Result<Report, CallError> {
        let begun = Instant::now();
        let mut search = match self.search.take() {
            Some(search) => search,
            None => {
                self.plan.search_begun();
                Search { names: admin::names(&self.gate)?, found: Vec::new(), begun, busy: Duration::ZERO }
            }
        };
        let Some(found) = search.names.next_step().transpose()? else {
            self.plan.search_done(search.found.clone(), search.begun, search.busy, Instant::now());
            return Ok(Report::Stored(search.found));
        };
        let found: Vec<Name> = found.into_iter().filter(|name| self.filter.accepts(name)).collect();
        let took = begun.elapsed();
        search.busy += took;
        search.found.extend_from_slice(&found);
        self.plan.add(&found);
        self.plan.step_done(took, Instant::now());
        self.search = Some(search);
        Ok(Report::Found(found))
    }
}

fn first_line(error: &CallError) -> String {
    words::of(error).lines().next().unwrap_or_default().to_owned()
}
