//! The connections of a pool that carry nothing now, and who waits for one.

use super::{Connections, Turn, Wire};
use crate::error::failure::{Failure, FailureKind};
use crate::sync::{lock, wait_for};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

/// A connection that was idle for so long is tested with `PING` before it carries a call. Longer than the pauses of the waiters
/// that ask most often.
const IDLE: Duration = Duration::from_millis(1_500);

#[derive(Default)]
pub(super) struct Shelf {
    pub(super) idle: Vec<Wire>,
    pub(super) open: usize,
    /// How many of these carry what follows an unanswered call: they may wait long, and nobody waits for them.
    pub(super) extra: usize,
    /// How many broke or did not answer in time, and have no successor yet.
    pub(super) broken: usize,
    /// Counts the times that a connection was found dropped: the idle ones of before are then likely dead too.
    generation: u64,
    /// See [`Connections::moves`]: those of before lead to what is no master any more.
    moves: u64,
    /// Threads that wait for a connection, in the order in which they get one.
    line: VecDeque<Arc<Condvar>>,
}

/// What a thread may go on with.
enum Ready {
    Wire(Wire),
    /// A place for a new connection, of this generation.
    Place(u64),
}

impl Shelf {
    fn ready(&mut self, most: usize, moves: u64) -> Option<Ready> {
        if self.moves != moves {
            self.moves = moves;
            self.generation += 1;
        }
        while let Some(wire) = self.idle.pop() {
            if wire.generation == self.generation {
                return Some(Ready::Wire(wire));
            }
            self.open -= 1;
            self.broken += 1;
        }
        if self.open < most + self.extra {
            self.open += 1;
            return Some(Ready::Place(self.generation));
        }
        None
    }

    /// Something came back: wakes whoever is first.
    fn call_next(&self) {
        if let Some(first) = self.line.front() {
            first.notify_one();
        }
    }
}

impl Connections {
    /// A connection from the shelf, or a new one, or one that comes back: first come, first served. By `latest`, on this
    /// machine's clock.
    pub(super) fn take(&self, turn: Turn, latest: Instant) -> Result<Wire, Failure> {
        let generation = loop {
            match self.wait_for_turn(turn, latest)? {
                Ready::Wire(wire) if wire.used.elapsed() < IDLE => return Ok(wire),
                Ready::Wire(wire) => {
                    if let Some(wire) = self.answers(wire, latest)? {
                        return Ok(wire);
                    }
                }
                Ready::Place(generation) => break generation,
            }
        };
        let left = latest.saturating_duration_since(Instant::now());
        let within = self.timeouts.connect.min(left);
        #[cfg(feature = "r2d2")]
        self.rescue(within);
        match self.source.line(&self.timeouts, within) {
            Ok(con) => {
                self.count_successor();
                Ok(Wire {
                    con,
                    node: self.node,
                    read_timeout: self.timeouts.read,
                    generation,
                    used: Instant::now(),
                    parked: None,
                })
            }
            Err(failure) => {
                self.give_up_place();
                Err(failure)
            }
        }
    }

    /// The connection, if it answers; nothing where it was closed. It was idle for a while, so the server may have gone since. A
    /// call on it would be sent and lost, and then nobody could tell whether it was run.
    fn answers(&self, mut wire: Wire, latest: Instant) -> Result<Option<Wire>, Failure> {
        let left = latest.saturating_duration_since(Instant::now());
        let bound = wire.bound(left);
        match bound.and_then(|()| Ok(redis::cmd("PING").exec(&mut *wire.con)?)) {
            Err(failure) if failure.kind() == FailureKind::TimedOut => {
                self.discard(wire);
                Err(failure)
            }
            Err(failure) if failure.is_broken() => {
                self.discard(wire);
                Ok(None)
            }
            // What else the server refuses is for the call to report.
            Ok(()) | Err(_) => Ok(Some(wire)),
        }
    }

    fn wait_for_turn(&self, turn: Turn, latest: Instant) -> Result<Ready, Failure> {
        let front = turn == Turn::First;
        let mut shelf = lock(&self.shelf);
        if (front || shelf.line.is_empty())
            && let Some(ready) = shelf.ready(self.most, self.moves())
        {
            return Ok(ready);
        }
        let called = Arc::new(Condvar::new());
        if front {
            shelf.line.push_front(called.clone());
        } else {
            shelf.line.push_back(called.clone());
        }
        loop {
            let is_first = shelf
                .line
                .front()
                .is_some_and(|first| Arc::ptr_eq(first, &called));
            let ready = if is_first {
                shelf.ready(self.most, self.moves())
            } else {
                None
            };
            let left = latest.saturating_duration_since(Instant::now());
            if ready.is_some() || left.is_zero() {
                shelf.line.retain(|other| !Arc::ptr_eq(other, &called));
                shelf.call_next(); // there may be one for the next, too
                let text = format!("{} connections, all busy", self.most);
                return ready.ok_or_else(|| Failure::new(FailureKind::PoolExhausted, text));
            }
            shelf = wait_for(&called, shelf, left);
        }
    }

    pub(super) fn put_back(&self, mut wire: Wire) {
        wire.used = Instant::now();
        let mut shelf = lock(&self.shelf);
        if shelf.open > self.most || wire.con.is_lent() {
            shelf.open -= 1;
        } else {
            shelf.idle.push(wire);
        }
        shelf.call_next();
    }

    /// Closes a connection that was found dropped. Those on the shelf of the same age are not used again.
    pub(super) fn discard(&self, wire: Wire) {
        self.outdate(Some(wire.generation));
        self.give_up_broken();
    }

    /// Those on the shelf of this age are not used again.
    pub(super) fn outdate(&self, generation: Option<u64>) {
        let mut shelf = lock(&self.shelf);
        if generation == Some(shelf.generation) {
            shelf.generation += 1;
        }
    }

    /// A connection leaves the pool that another one has to replace.
    pub(super) fn give_up_broken(&self) {
        lock(&self.shelf).broken += 1;
        self.give_up_place();
    }

    /// A connection was made: one of those that broke has a successor.
    fn count_successor(&self) {
        let mut shelf = lock(&self.shelf);
        if shelf.broken > 0 {
            shelf.broken -= 1;
            drop(shelf);
            self.count_reconnect("a connection was replaced");
        }
    }

    fn give_up_place(&self) {
        let mut shelf = lock(&self.shelf);
        shelf.open -= 1;
        shelf.call_next();
    }

    /// Of no use any more, though it stands: closed, unless it is to be given back.
    pub(super) fn strand(&self, wire: Wire) {
        #[cfg(feature = "r2d2")]
        if wire.con.is_lent() {
            lock(&self.stranded).push(wire.con);
            return;
        }
        drop(wire);
    }

    /// Makes one anew that was lent, so that it can go back.
    #[cfg(feature = "r2d2")]
    fn rescue(&self, within: Duration) {
        let Some(mut line) = lock(&self.stranded).pop() else {
            return;
        };
        match self.source.connect(&self.timeouts, within) {
            Ok(con) => *line = con,
            Err(_) => lock(&self.stranded).push(line),
        }
    }

    /// How many connections are open now.
    pub(crate) fn open(&self) -> usize {
        lock(&self.shelf).open
    }
}
