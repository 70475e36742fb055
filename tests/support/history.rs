//! Histories: the calls of many processes on semaphores with their outcomes, start and end times; and the
//! search for an order of these calls that explains all outcomes.
//!
//! A process records with a [`Recorder`], most easily by a [`client::Recorded`] around a semaphore of the
//! library. After all processes have ended, [`History::read`] combines their files, and [`History::check`]
//! checks the history by its [`Rules`].

mod back;
pub mod client;
mod excerpt;
mod model;
mod plan;
mod planned;
mod recorder;
mod rule;
mod search;
mod shut;
mod step;
mod text;
mod two_masters;
mod waits;
mod way;

pub use recorder::Recorder;
pub use rule::Rule;
use search::Effort;
pub use search::{Report, Violation};

/// Microseconds since 1970 by this machine's clock, which the server uses too.
pub type Micros = u64;

/// The operation of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Acquire {
        /// `None`: all free permits.
        permits: Option<u32>,
        lease: Lease,
        /// Waits in line.
        waits: bool,
        /// Joins the line as if it had come this much earlier.
        head_start_ms: u64,
    },
    /// Releases all permits except `keep`. A revocation of another holder's permit is recorded as this too.
    Release { id: String, keep: u32 },
    /// A new lease from now on. Adopting another process's permit is recorded as this too.
    Refresh { id: String, lease: Lease },
    /// Reads the holder's own clock. If a permit was not lost before and after its use, it was used during
    /// its lease.
    Look { id: String },
    /// The server lost data.
    Forget(Forgotten),
    /// A master that was cut off is reachable again but does not yet know that another one was promoted. It
    /// answers from its old data, and the new master never receives what it grants.
    TwoMasters,
}

/// What the server lost. No waiter is in line afterwards. After the first two kinds a refusal is possible
/// although permits are free, until everything known from before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Forgotten {
    /// One of the three keys. Holders learn that their permits are lost, but their permits are not granted
    /// again before their leases end.
    OneKey,
    /// The latest writes. A holder from before may or may not still hold its permit, and counts again after a
    /// refresh.
    TheLast,
    /// All data: the server restarted without a file, or its keys were deleted. Nothing is in use, and calls
    /// that ended before have no later effect.
    Everything,
}

/// The lease of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    Ms(u64),
    /// This lease, renewed by calls that are not in the history: for ever, or until its process ends.
    Renewed(u64),
    Permanent,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Granted(Granted),
    Denied(Full),
    /// Not granted in line before the timeout.
    TimedOut(Full),
    /// The wait was cancelled. A grant at that moment was released.
    Cancelled,
    Released,
    /// There was nothing to release.
    Gone,
    /// The end of the lease in ms of the server's time, if the reply contained it.
    Refreshed(Option<u64>),
    Lost,
    /// Checked, and not lost.
    Held,
    /// Has run, without a result.
    Done,
    /// The call may have run, or may run later. Also recorded for a dropped permit.
    Unknown,
    /// Has certainly not run.
    Failed,
    /// The process ended before the call returned.
    NeverReturned,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub id: String,
    pub permits: u32,
    pub fence: u64,
    /// The ticket, if the call waited in line.
    pub ticket: Option<u64>,
    /// The end of the lease in ms of the server's time, if the reply contained it.
    pub expires_at: Option<u64>,
}

/// The usage that a refusal reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub in_use: u32,
    pub limit: u32,
    pub waiting: u64,
    /// From a reply of the server. Without a reply to its last call, a wait may have been granted unseen.
    pub answered: bool,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its caller: the process, and the number of the call there.
    pub who: String,
    pub semaphore: String,
    pub op: Op,
    pub start: Micros,
    /// `None`: the call never returned.
    pub end: Option<Micros>,
    pub outcome: Outcome,
}

/// The rules for a history. [`Rules::new`] is the complete promise. Histories with faults can need weaker
/// rules.
#[derive(Clone, Debug)]
pub struct Rules {
    pub limit: u32,
    /// First come, first served, apart from head starts. If false, a waiter may be skipped, for example while
    /// its subscription is down.
    pub order: bool,
    /// A refusal reports the exact number of permits in use. If false, it must only be full, or others must
    /// be waiting.
    pub counts: bool,
    /// The server uses this machine's clock, so fences and tickets contain the time of their creation.
    pub same_clock: bool,
    /// A call may have been retried after a lost reply. Its permit may then already be released by its own
    /// first attempt.
    pub repeated: bool,
    /// How long after its end (or after its start, if it never returned) an unanswered call may still run, in
    /// µs. The same bound applies to a release that the library sends for it.
    pub late: Micros,
}

impl Rules {
    pub fn new(limit: u32) -> Rules {
        Rules { limit, order: true, counts: true, same_clock: true, repeated: false, late: Micros::MAX }
    }
}

/// All calls of many processes.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
}

impl History {
    /// Searches for an order of the calls that explains all outcomes.
    pub fn check(&self, rules: &Rules) -> Result<Report, Violation> {
        search::check(&self.calls, rules, &[Effort::Few, Effort::All])
    }

    /// The same without shortcuts, which is slow: verifies that the shortcuts miss no order.
    pub fn check_every_order(&self, rules: &Rules) -> Result<Report, Violation> {
        search::check(&self.calls, rules, &[Effort::Every])
    }

    /// Like `check`, but panics with a description of the violation.
    #[track_caller]
    pub fn assert(&self, rules: &Rules) -> Report {
        match self.check(rules) {
            Ok(report) => report,
            Err(violation) => panic!("{violation}"),
        }
    }

    /// The number of calls with such an outcome.
    pub fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.calls.iter().filter(|call| is(&call.outcome)).count()
    }
}

impl Call {
    /// The latest possible end.
    pub(self) fn latest(&self) -> Micros {
        self.end.unwrap_or(Micros::MAX)
    }

    /// The head start.
    pub(self) fn head_start(&self) -> Micros {
        match self.op {
            Op::Acquire { head_start_ms, .. } => head_start_ms * 1_000,
            _ => 0,
        }
    }
}
