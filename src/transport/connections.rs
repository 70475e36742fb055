//! Connections to the server: a small pool, each with timeouts of its own, and how a call is carried out on one.

mod convoy;
mod passage;
mod shelf;
mod wire;

pub(crate) use wire::Parked;

use crate::clock::Clock;
use crate::counters::Counts;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::lease::Moment;
use crate::sync::lock;
use crate::trace;
#[cfg(feature = "r2d2")]
use crate::transport::line::Line;
use crate::transport::source::Source;
use convoy::Convoys;
use redis::{Connection, ConnectionAddr};
use shelf::Shelf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::Wire;

/// How long connecting, reading and writing may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) read: Duration,
    pub(crate) write: Duration,
}

/// Who gets a connection first, where all are busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Before all others who wait for one.
    First,
    Last,
}

/// A call that was answered, and when it was sent.
pub(crate) struct Answered<T> {
    pub(crate) reply: T,
    /// The instant before the answered call was sent.
    pub(crate) sent: Moment,
    /// It was sent before and not answered, so the server may have run it twice.
    pub(crate) repeated: bool,
}

/// A call that was not answered as it should be.
pub(crate) struct Unanswered {
    pub(crate) error: CallError,
    /// The connection that carried it, if it still stands.
    pub(crate) wire: Option<Parked>,
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Unanswered {
        Unanswered {
            error: CallError::Failed(failure),
            wire: None,
        }
    }
}

/// The pool of one server.
pub(crate) struct Connections {
    pub(crate) clock: Clock,
    counts: Arc<Counts>,
    node: usize,
    source: Source,
    timeouts: Timeouts,
    most: usize,
    pid: u32,
    shelf: Mutex<Shelf>,
    convoys: Mutex<Convoys>,
    /// Counts those that are parked.
    parked: Arc<()>,
    retired: AtomicBool,
    /// It was asked how it is set up.
    looked_at: AtomicBool,
    /// What the user's pool lent, with more replies due than can be skipped: it goes back once it is made anew.
    #[cfg(feature = "r2d2")]
    stranded: Mutex<Vec<Line>>,
}

impl Connections {
    /// A pool of up to `most` connections to the server of this number. Opens none yet.
    pub(crate) fn new(
        clock: Clock,
        counts: Arc<Counts>,
        node: usize,
        source: Source,
        timeouts: Timeouts,
        most: usize,
    ) -> Connections {
        Connections {
            clock,
            counts,
            node,
            source,
            timeouts,
            most,
            pid: std::process::id(),
            shelf: Mutex::default(),
            convoys: Mutex::default(),
            parked: Arc::default(),
            retired: AtomicBool::new(false),
            looked_at: AtomicBool::new(false),
            #[cfg(feature = "r2d2")]
            stranded: Mutex::default(),
        }
    }

    /// 0 for the only server of a gate.
    pub(crate) fn node(&self) -> usize {
        self.node
    }

    /// Where the server is, without user and password.
    pub(crate) fn address(&self) -> String {
        self.source.address()
    }

    /// True the first time.
    pub(crate) fn is_looked_at_first(&self) -> bool {
        !self.looked_at.load(Ordering::Relaxed) && !self.looked_at.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Whether this process is the one that opened the connections, and not a fork of it.
    pub(crate) fn is_own_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// A node of a cluster is no master (any more), so nobody needs a connection to it.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn retire(&self, retired: bool) {
        if !self.retired.swap(retired, Ordering::Relaxed) && retired {
            let mut shelf = lock(&self.shelf);
            shelf.open -= shelf.idle.len();
            shelf.idle.clear();
        }
    }

    /// What broke stands again: a connection, or a subscription.
    pub(crate) fn count_reconnect(&self, what: &str) {
        trace::reconnected(what, || self.address());
        self.counts.reconnects.add_one();
    }

    /// How often another server took the place of this one.
    pub(crate) fn moves(&self) -> u64 {
        self.source.moves()
    }

    /// A connection outside the pool, for the subscriber.
    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        self.source.connect(&self.timeouts, self.timeouts.connect)
    }

    /// The places where connecting can have failed; see [`Source::addresses`].
    pub(crate) fn addresses(&self, within: Duration) -> Vec<ConnectionAddr> {
        self.source.addresses(within)
    }

    /// Runs `call`, an idempotent script, and runs it again on a new connection if the one it had was dropped.
    ///
    /// With `until`, no reply is waited for much longer than that. A server that stalls is not asked twice: the first
    /// call is still on its way.
    pub(crate) fn call<T>(
        &self,
        turn: Turn,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        if !self.is_own_process() {
            return Err(Failure::new(FailureKind::Forked, "forked process").into());
        }
        repeat(&mut || self.attempt(self.take(turn, self.latest(until))?, until, call))
    }

    /// Runs `call` on this very connection, so that it reaches the server after what was sent on it before. With `until` it
    /// waits for nobody else who does.
    pub(crate) fn call_on<T>(
        &self,
        parked: Parked,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        let place = match until {
            None => Some(lock(&parked.wire)),
            Some(_) => parked.wire.try_lock().ok(),
        };
        let Some(mut place) = place else {
            let busy = Failure::new(FailureKind::TimedOut, "its connection is busy");
            return Err(Unanswered {
                error: CallError::Unknown(busy),
                wire: Some(parked.clone()),
            });
        };
        let Some(mut wire) = place.take() else {
            drop(place);
            return self.call(Turn::Last, until, call);
        };
        wire.parked = None;
        let mut shelf = lock(&self.shelf);
        shelf.open += 1; // in the pool again, above its size until this call is over
        shelf.extra += 1;
        shelf.broken = shelf.broken.saturating_sub(1);
        drop(shelf);
        let outcome = self.attempt(wire, until, call);
        lock(&self.shelf).extra -= 1;
        outcome.map_err(|unanswered| {
            let Some(again) = unanswered.wire else {
                return unanswered;
            };
            *place = lock(&again.wire).take();
            Unanswered {
                error: unanswered.error,
                wire: Some(parked.clone()),
            }
        })
    }

    fn attempt<T>(
        &self,
        mut wire: Wire,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        if let Err(failure) = wire.bound(self.patience(until)) {
            self.discard(wire);
            return Err(failure.into());
        }
        let sent = self.clock.moment();
        let error = match call(&mut wire.con) {
            Ok(reply) => {
                self.put_back(wire);
                return Ok(Answered {
                    reply,
                    sent,
                    repeated: false,
                });
            }
            Err(error) => error,
        };
        let wire = match &error {
            CallError::Unknown(failure) if failure.kind() == FailureKind::TimedOut => {
                if failure.is_in_step() {
                    self.park(wire)
                } else {
                    self.give_up_broken();
                    self.strand(wire);
                    None
                }
            }
            CallError::Unknown(_) => {
                self.discard(wire);
                None
            }
            CallError::Failed(failure) if failure.is_broken() => {
                self.discard(wire);
                None
            }
            CallError::Failed(_) | CallError::Invalid(_) => {
                self.put_back(wire);
                None
            }
        };
        Err(Unanswered { error, wire })
    }

    /// It still stands, and its late replies will be skipped. It leaves the pool, for what must follow the calls; but not any
    /// number of them, while a server stalls for long.
    fn park(&self, mut wire: Wire) -> Option<Parked> {
        self.give_up_broken();
        wire.parked = Some(self.parked.clone());
        (Arc::strong_count(&self.parked) <= self.most + 1).then(|| Parked::of(wire))
    }

    /// When a call that is sent now ends at the latest, on this machine's clock.
    fn latest(&self, until: Option<Instant>) -> Instant {
        Instant::now() + self.patience(until)
    }

    fn patience(&self, until: Option<Instant>) -> Duration {
        match until {
            Some(until) => self
                .timeouts
                .read
                .min(until.saturating_duration_since(self.clock.now())),
            None => self.timeouts.read,
        }
    }
}

/// Makes an attempt, and another one if the connection that it had was dropped.
fn repeat<T>(
    attempt: &mut dyn FnMut() -> Result<Answered<T>, Unanswered>,
) -> Result<Answered<T>, Unanswered> {
    match attempt() {
        Err(Unanswered {
            error: CallError::Unknown(failure),
            wire: None,
        }) if failure.kind() == FailureKind::Disconnected => {
            let again = attempt().map(|answered| Answered {
                repeated: true,
                ..answered
            });
            // Whatever became of the second: the first may have been carried out.
            again.map_err(|unanswered| match unanswered.error {
                CallError::Failed(failure) => Unanswered {
                    error: CallError::Unknown(failure),
                    wire: unanswered.wire,
                },
                _ => unanswered,
            })
        }
        first => first,
    }
}

#[cfg(feature = "r2d2")]
impl Drop for Connections {
    /// Rather one connection fewer in the user's pool than one that gives wrong answers.
    fn drop(&mut self) {
        for line in lock(&self.stranded).drain(..) {
            std::mem::forget(line);
        }
    }
}
