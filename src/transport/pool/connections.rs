//! The idle connections of a pool, the number of busy ones, and the queue of waiting calls.

use super::queue::{Progress, Queued};
use super::slot::Slot;
use crate::transport::connection::PooledConnection;
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of connections to use if there are more callers than connections and the server is near. A few full
/// packets cost both sides less than many packets of one call. With a smaller number, 16 threads wait too long for a
/// packet; with a larger one, 32 threads gain less.
const ENOUGH: usize = 4;

#[derive(Default)]
pub(super) struct Connections {
    pub(super) idle: Vec<PooledConnection>,
    pub(super) open: usize,
    /// The number of threads that have a connection, or are about to get one.
    pub(super) busy: usize,
    /// The number of calls of other threads in the packets of the busy threads.
    pub(super) along: usize,
    /// The number of connections that broke or did not answer in time, and were not replaced yet.
    pub(super) unreplaced: usize,
    /// The number of times that a connection was found broken. Connections of earlier generations are probably broken
    /// too.
    pub(super) generation: u64,
    /// See `Pool::moves`: earlier connections are to a former master.
    pub(super) moves: u64,
    /// The last packet was answered within `AT_ONCE`.
    pub(super) is_near: bool,
    pub(super) queue: VecDeque<Arc<Queued>>,
}

impl Connections {
    /// A connection for one more busy thread.
    pub(super) fn slot(&mut self, moves: u64) -> Slot {
        if self.moves != moves {
            self.moves = moves;
            self.generation += 1;
        }
        while let Some(connection) = self.idle.pop() {
            if connection.generation == self.generation {
                return Slot::Idle(connection);
            }
            self.lose();
        }
        self.open += 1;
        Slot::New(self.generation)
    }

    /// Counts a connection that leaves the pool and must be replaced.
    pub(super) fn lose(&mut self) {
        self.open -= 1;
        self.unreplaced += 1;
    }

    /// Stops the use of the idle connections of this generation.
    pub(super) fn outdate(&mut self, generation: u64) {
        if generation == self.generation {
            self.generation += 1;
        }
    }

    /// How many threads may be busy before the next one waits. `shares`: the next one may wait for a shared packet. It
    /// does so only if there are more callers than connections.
    pub(super) fn enough(&self, most: usize, shares: bool) -> usize {
        let callers = self.busy + self.along + self.queue.len();
        match self.is_near && shares && callers >= most {
            true => ENOUGH.min(most),
            false => most,
        }
    }

    /// A thread no longer uses its connection. The first in the queue gets one.
    pub(super) fn step_down(&mut self, most: usize, moves: u64) {
        self.busy -= 1;
        while let Some(first) = self.queue.front()
            && self.busy < self.enough(most, first.may_wait())
            && let Some(first) = self.queue.pop_front()
        {
            self.busy += 1;
            first.set(Progress::Sends(self.slot(moves)));
        }
    }
}
