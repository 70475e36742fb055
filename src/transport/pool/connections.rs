//! The connections of a pool that are idle, how many are busy, and what waits for one.

use super::queue::{Progress, Queued};
use super::slot::Slot;
use crate::transport::connection::PooledConnection;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many connections are enough where there are more callers than connections and the server answers at once: a few full
/// packets cost both sides less than many of one call. With fewer, 16 threads wait too long for a packet; with more, 32 gain less.
const ENOUGH: usize = 4;

#[derive(Default)]
pub(super) struct Connections {
    pub(super) idle: Vec<PooledConnection>,
    pub(super) open: usize,
    /// How many threads have a connection, or are about to.
    pub(super) busy: usize,
    /// How many calls of other threads are under way in the packets of these.
    pub(super) along: usize,
    /// How many broke or did not answer in time, and have no successor yet.
    pub(super) unreplaced: usize,
    /// Counts the times that a connection was found broken: the idle ones of before are then likely dead too.
    pub(super) generation: u64,
    /// See `Pool::moves`: connections of before lead to a former master.
    pub(super) moves: u64,
    /// The last packet was answered at once.
    pub(super) is_near: bool,
    pub(super) queue: VecDeque<Arc<Queued>>,
}

impl Connections {
    /// The connection for one more busy thread.
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

    /// A connection leaves the pool that another one has to replace.
    pub(super) fn lose(&mut self) {
        self.open -= 1;
        self.unreplaced += 1;
    }

    /// Those idle of this generation are not used again.
    pub(super) fn outdate(&mut self, generation: u64) {
        if generation == self.generation {
            self.generation += 1;
        }
    }

    /// How many threads may be busy before the next one waits. `shares`: the next one may wait for a packet with others. It
    /// does so only where there are more callers than connections.
    pub(super) fn enough(&self, most: usize, shares: bool) -> usize {
        let callers = self.busy + self.along + self.queue.len();
        match self.is_near && shares && callers >= most {
            true => ENOUGH.min(most),
            false => most,
        }
    }

    /// A thread is done with its connection: whoever is first in the queue goes on.
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
