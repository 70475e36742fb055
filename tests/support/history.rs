//! Histories: what many processes asked of semaphores and what they were told, each call with its start and its end; and
//! the search for an order of these calls that explains all of it.
//!
//! A process records through a [`Recorder`], most easily with [`client::Recorded`] around a semaphore of the library. After
//! all have ended, [`History::read`] puts their files together and [`History::check`] judges them by [`Rules`].

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

/// Microseconds since 1970 by the clock of this machine, which is the server's.
pub type Micros = u64;

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Acquire {
        /// `None`: all that are free.
        permits: Option<u32>,
        lease: Lease,
        /// In line.
        waits: bool,
    },
    /// Gives back all but `keep`. Taking away what another holds is one of these too.
    Release { id: String, keep: u32 },
    /// A lease from now on; taking over what another process held is one of these too.
    Refresh { id: String, lease: Lease },
    /// A look at the holder's own clock. A permit that was looked at before and after it was used was used in its lease.
    Look { id: String },
    /// The server lost something that it knew.
    Forget(Forgotten),
    /// A master that was cut off is back and has yet to hear that another took its place. What it answers meanwhile is out of
    /// what it knew, and the other never knows of it.
    TwoMasters,
}

/// What the server knows no more. Nobody is in line any more then; and after the first two a refusal may
/// come though something is free, until what is still known of before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Forgotten {
    /// One of the three keys: who holds is told that it is lost, but nobody else gets it before its lease ends.
    OneKey,
    /// What it was told last: whoever held may hold or not, and counts once it was refreshed.
    TheLast,
    /// All: it was restarted without a file, or its keys were deleted. Nothing is in use, and a call
    /// that had ended before is not carried out any more.
    Everything,
}

/// How long a permit lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    Ms(u64),
    /// As long, and renewed by calls that are not in the history: for ever, or until its process ends.
    Renewed(u64),
    Permanent,
}

/// What the caller was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Granted(Granted),
    Denied(Full),
    /// Not granted in line while there was time.
    TimedOut(Full),
    /// The wait was given up; what was granted in that moment was given back.
    Cancelled,
    Released,
    /// There was nothing to release.
    Gone,
    /// With the end of the lease in ms of the server's time, where it was told.
    Refreshed(Option<u64>),
    Lost,
    /// Looked at and not lost.
    Held,
    /// Carried out, with nothing to tell.
    Done,
    /// It may have been carried out, or be so still. Also of a permit that was dropped.
    Unknown,
    /// Certainly not carried out.
    Failed,
    /// The process ended, or was ended, before the call did.
    NeverReturned,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub id: String,
    pub permits: u32,
    pub fence: u64,
    /// The place in line, of who waited.
    pub ticket: Option<u64>,
    /// The end of the lease in ms of the server's time, where it was told.
    pub expires_at: Option<u64>,
}

/// How full it was, as a refusal tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub in_use: u32,
    pub limit: u32,
    pub waiting: u64,
    /// The server's own answer. A wait whose last call was not answered may have been granted unseen.
    pub answered: bool,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who made it: the process and the number of the call there.
    pub who: String,
    pub semaphore: String,
    pub op: Op,
    pub start: Micros,
    /// `None`: it never returned.
    pub end: Option<Micros>,
    pub outcome: Outcome,
}

/// What a history is judged by. [`Rules::new`] is the whole promise; a history in which things broke may need less.
#[derive(Clone, Debug)]
pub struct Rules {
    pub limit: u32,
    /// First come, first served. Without: a waiter may have been passed over, as one whose subscription was down.
    pub order: bool,
    /// A refusal tells exactly how many are in use. Without: it only has to be full, or others have to wait.
    pub counts: bool,
    /// The server's clock is this machine's, so fences and tickets tell when they were given.
    pub same_clock: bool,
    /// A call may have been sent again after its reply was lost: its permit may be gone by its own first attempt.
    pub repeated: bool,
    /// How long after its end, or its start where it never returned, a call without an answer may still be carried out,
    /// also by a release that the library makes up for it; in us.
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
    /// Finds whether any order of the calls explains all that was told.
    pub fn check(&self, rules: &Rules) -> Result<Report, Violation> {
        search::check(&self.calls, rules, &[Effort::Few, Effort::All])
    }

    /// The same without a shortcut, which takes long: to see that the shortcuts leave nothing out.
    pub fn check_every_order(&self, rules: &Rules) -> Result<Report, Violation> {
        search::check(&self.calls, rules, &[Effort::Every])
    }

    /// As `check`, with a panic that shows what is wrong.
    #[track_caller]
    pub fn assert(&self, rules: &Rules) -> Report {
        match self.check(rules) {
            Ok(report) => report,
            Err(violation) => panic!("{violation}"),
        }
    }

    /// How many calls ended so.
    pub fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.calls.iter().filter(|call| is(&call.outcome)).count()
    }
}

impl Call {
    /// When it ended at the latest.
    pub(self) fn latest(&self) -> Micros {
        self.end.unwrap_or(Micros::MAX)
    }
}
