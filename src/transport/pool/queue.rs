//! Calls that wait for a connection. Each gets one, or is sent in the packet of another thread.

use super::connections::Connections;
use super::slot::Slot;
use super::{Pool, Response, Sending};
use crate::clock::{machine_now, since};
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::exchange::Packet;
use crate::sync::{lock, wait_for};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The maximum number of replies to a packet with calls of several threads.
const MOST: usize = 16;

/// A call that waits for this long gets an additional connection, since the busy ones may be stuck.
const STUCK: Duration = Duration::from_millis(10);

/// Calls with deadlines share a packet only if their deadlines differ by at most this: no call may wait much longer
/// than it has time.
const TOGETHER: Duration = Duration::from_millis(20);

/// A packet that waits.
pub(super) struct Queued {
    pub(super) packet: Packet<'static>,
    pub(super) latest: Instant,
    since: Instant,
    alone: bool,
    /// The caller gave a deadline, so not only the read timeout applies.
    has_deadline: bool,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// The progress of a waiting packet.
pub(super) enum Progress {
    Waits,
    /// Its own thread must send it.
    Sends(Slot),
    /// Another thread sent it.
    Answered(Box<Response>),
}

impl Queued {
    pub(super) fn new(packet: &Packet, sending: Sending, latest: Instant) -> Arc<Queued> {
        Arc::new(Queued {
            packet: Packet { bytes: packet.bytes.to_vec().into(), replies: packet.replies },
            latest,
            since: machine_now(),
            alone: sending.is_alone(),
            has_deadline: sending.until.is_some(),
            progress: Mutex::new(Progress::Waits),
            changed: Condvar::new(),
        })
    }

    /// Whether it may wait for a shared packet.
    pub(super) fn may_wait(&self) -> bool {
        !self.alone && since(self.since) < STUCK
    }

    pub(super) fn set(&self, progress: Progress) {
        *lock(&self.progress) = progress;
        self.changed.notify_one();
    }

    /// The progress by `until`.
    fn progress(&self, until: Instant) -> Progress {
        let mut progress = lock(&self.progress);
        loop {
            let left = until.saturating_duration_since(machine_now());
            match std::mem::replace(&mut *progress, Progress::Waits) {
                Progress::Waits if !left.is_zero() => {}
                progress => return progress,
            }
            progress = wait_for(&self.changed, progress, left);
        }
    }
}

impl Pool {
    /// Waits until the packet may be sent or is answered. [`Progress::Waits`]: its time is over.
    pub(super) fn wait_in_queue(&self, queued: &Arc<Queued>) -> Progress {
        let mut until = queued.latest.min(queued.since + STUCK);
        loop {
            match queued.progress(until) {
                Progress::Waits => {}
                progress => return progress,
            }
            let mut connections = lock(&self.connections);
            let mut queue = connections.queue.iter();
            let Some(index) = queue.position(|other| Arc::ptr_eq(other, queued)) else {
                // It left the queue. Another thread is about to set its progress or its replies.
                until = machine_now() + self.options.timeouts.read;
                continue;
            };
            if connections.busy < self.options.most {
                connections.queue.remove(index);
                connections.busy += 1;
                return Progress::Sends(connections.slot(self.moves()));
            }
            if machine_now() >= queued.latest {
                connections.queue.remove(index);
                return Progress::Waits;
            }
            until = queued.latest;
        }
    }
}

pub(super) fn all_busy(most: usize) -> Failure {
    let text = format!("the gate has {most}");
    Failure::new(FailureKind::PoolExhausted, text)
}

impl Connections {
    /// Takes the packets out of the queue that are sent together with `packet`, in order.
    pub(super) fn take_along(&mut self, packet: &Packet, sending: Sending, latest: Instant) -> Vec<Arc<Queued>> {
        let mut along = Vec::new();
        if sending.is_alone() {
            return along;
        }
        let mut replies = packet.replies;
        self.queue.retain(|other| {
            let apart = latest.max(other.latest) - latest.min(other.latest);
            let in_time = match sending.until {
                Some(_) => other.has_deadline && apart <= TOGETHER,
                None => !other.has_deadline,
            };
            let goes = in_time && !other.alone && replies + other.packet.replies <= MOST;
            if goes {
                replies += other.packet.replies;
                along.push(other.clone());
            }
            !goes
        });
        self.along += along.len();
        along
    }
}

/// Combines all into one packet. Also returns the number of its replies.
pub(super) fn combined(packet: &Packet, along: &[Arc<Queued>]) -> (Vec<u8>, usize) {
    let mut bytes = packet.bytes.to_vec();
    let mut replies = packet.replies;
    for other in along {
        bytes.extend_from_slice(&other.packet.bytes);
        replies += other.packet.replies;
    }
    (bytes, replies)
}
