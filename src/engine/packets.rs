//! The packets of a connection that are not answered, and who reads, writes and waits.

use super::connection::{MOST_UNANSWERED, Outcome, TICK};
use super::place::{Place, Woken};
use crate::clock::machine_now;
use crate::error::failure::Failure;
use crate::sync::{Arc, Mutex, lock};
use redis::Value;
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::{Duration, Instant};

/// What the threads and tasks of a connection share: the packets that wait, and who reads and writes.
#[derive(Default)]
pub(super) struct Packets {
    /// Packets that nobody has begun to write, and a buffer to exchange it with.
    pub(super) out: Vec<u8>,
    pub(super) spare: Vec<u8>,
    pub(super) is_writing: bool,
    /// A task writes when it is polled next.
    pub(super) is_flush_due: bool,
    /// The packets without all of their replies, in order.
    pub(super) pending: VecDeque<PendingPacket>,
    /// The number of the first of them.
    pub(super) first: u64,
    /// The bytes of these packets.
    pub(super) unanswered: usize,
    /// How many of these packets have a thread, and a task, that waits.
    pub(super) threads: usize,
    pub(super) tasks: usize,
    /// How many callers wait for a message, but do not read themselves.
    pub(super) listeners: usize,
    /// Until then a message may arrive for which nobody waits.
    pub(super) listens_until: Option<Instant>,
    /// The threads that wait for a message and can read, in order.
    pub(super) readers: BTreeMap<u64, Arc<dyn Reads>>,
    pub(super) last_reader: u64,
    /// A thread is the reader, or is about to be.
    pub(super) has_reader: bool,
    pub(super) times: ReadTimes,
    /// The connection's own thread.
    pub(super) thread: OwnThread,
    /// Since then the server does not answer. The callers have got an error, and later calls use another connection. What
    /// must run after the unanswered packets is still sent here.
    pub(super) silent_since: Option<Instant>,
    pub(super) end: Option<Failure>,
}

/// What the reads of a connection show about its server.
pub(super) struct ReadTimes {
    /// When the reader was last seen to work, and when something arrived.
    pub(super) heartbeat: Instant,
    pub(super) received: Instant,
    /// How long reads have waited in vain, since the beginning, and until something arrived last.
    pub(super) waited: Duration,
    pub(super) waited_before: Duration,
}

impl Default for ReadTimes {
    fn default() -> ReadTimes {
        let now = machine_now();
        ReadTimes { heartbeat: now, received: now, waited: Duration::ZERO, waited_before: Duration::ZERO }
    }
}

impl ReadTimes {
    /// For how long the reader was not seen to work.
    pub(super) fn age(&self) -> Duration {
        machine_now().saturating_duration_since(self.heartbeat)
    }
}

#[derive(Default)]
pub(super) struct OwnThread {
    pub(super) is_running: bool,
    /// It was woken and has not looked since.
    pub(super) is_called: bool,
    /// It looks again after `LOOK` at most, without being called.
    pub(super) looks: bool,
}

pub(super) struct PendingPacket {
    pub(super) owner: Owner,
    /// The length of the packet.
    pub(super) bytes: usize,
    /// How many replies are missing.
    pub(super) missing: usize,
    pub(super) replies: Vec<Value>,
    submitted: Instant,
    /// How long reads had waited in vain by then.
    waited: Duration,
}

/// Who gets the replies to a packet.
pub(super) enum Owner {
    Thread(Arc<ReplyWaiter>),
    Task(Arc<ReplyWaiter>),
    /// Runs in the thread of the reader, so it does not block.
    Then(Box<dyn FnOnce(Outcome) + Send>),
    Nobody,
}

/// A caller that waits for the replies to a packet.
pub(super) struct ReplyWaiter {
    pub(super) place: Place<Option<Outcome>>,
    /// To wake a task from outside of its executor takes a system call. So the reader wakes one of the tasks that were
    /// last polled by the same thread, and that task wakes the others, with these wakers. `None`: it has done so.
    pub(super) others: Mutex<Option<Vec<Waker>>>,
}

impl ReplyWaiter {
    pub(super) fn new(place: Place<Option<Outcome>>) -> Arc<ReplyWaiter> {
        Arc::new(ReplyWaiter { place, others: Mutex::new(Some(Vec::new())) })
    }

    pub(super) fn wake_others(&self) {
        let others = lock(&self.others).take();
        others.into_iter().flatten().for_each(Waker::wake);
    }
}

/// A thread that can become the reader.
pub(super) trait Reads: Send + Sync {
    fn make_reader(&self) -> bool;
}

impl<T: Send> Reads for Place<T> {
    fn make_reader(&self) -> bool {
        Place::make_reader(self)
    }
}

impl Owner {
    fn is(&self, other: &Arc<ReplyWaiter>) -> bool {
        matches!(self, Owner::Thread(waiter) | Owner::Task(waiter) if Arc::ptr_eq(waiter, other))
    }

    /// Hands over the outcome. Returns a task that must be woken.
    pub(super) fn finish(self, outcome: Outcome) -> Option<(Arc<ReplyWaiter>, Woken)> {
        match self {
            Owner::Thread(waiter) | Owner::Task(waiter) => {
                let (_, woken) = waiter.place.change(|reply| *reply = Some(outcome));
                return woken.map(|woken| (waiter, woken));
            }
            Owner::Then(then) => then(outcome),
            Owner::Nobody => {}
        }
        None
    }
}

impl Packets {
    pub(super) fn push(&mut self, packet: &[u8], replies: usize, owner: Owner) -> u64 {
        self.count(&owner, true);
        let submitted = machine_now();
        self.out.extend_from_slice(packet);
        self.unanswered += packet.len();
        self.pending.push_back(PendingPacket {
            owner,
            bytes: packet.len(),
            missing: replies,
            replies: Vec::with_capacity(replies),
            submitted,
            waited: self.waited_until(submitted),
        });
        self.first + self.pending.len() as u64 - 1
    }

    pub(super) fn count(&mut self, owner: &Owner, is_added: bool) {
        let count = match owner {
            Owner::Thread(_) => &mut self.threads,
            Owner::Task(_) => &mut self.tasks,
            Owner::Then(_) | Owner::Nobody => return,
        };
        if is_added {
            *count += 1;
        } else {
            *count -= 1;
        }
    }

    /// Adds a reply to the first packet without all replies. `None`: there is no such packet, or it was not sent.
    pub(super) fn take_reply(&mut self, reply: Value) -> Option<Option<(Owner, Vec<Value>)>> {
        if self.in_flight() == 0 {
            return None;
        }
        let packet = self.pending.front_mut()?;
        packet.replies.push(reply);
        packet.missing -= 1;
        if packet.missing > 0 {
            return Some(None);
        }
        let packet = self.pending.pop_front()?;
        self.first += 1;
        self.unanswered -= packet.bytes;
        self.count(&packet.owner, false);
        Some(Some((packet.owner, packet.replies)))
    }

    /// The caller of this packet does not wait any more. Its replies will be dropped. Returns when it was submitted, if it
    /// was not answered.
    pub(super) fn abandon(&mut self, number: u64, waiter: &Arc<ReplyWaiter>) -> Option<Instant> {
        let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        // If this packet was given up before it was sent, a later one has its number.
        let packet = index.and_then(|index| self.pending.get_mut(index)).filter(|packet| packet.owner.is(waiter))?;
        let submitted = packet.submitted;
        let owner = std::mem::replace(&mut packet.owner, Owner::Nobody);
        self.count(&owner, false);
        Some(submitted)
    }

    /// How long reads have waited in vain, with the read that goes on.
    fn waited_until(&self, now: Instant) -> Duration {
        if self.has_reader {
            self.times.waited + now.saturating_duration_since(self.times.heartbeat).min(TICK)
        } else {
            self.times.waited
        }
    }

    /// Whether reads have waited in vain for so long since this packet was submitted, and nothing arrived. A reply that
    /// nobody has read yet is not late.
    pub(super) fn is_late(&self, packet: &PendingPacket, timeout: Duration) -> bool {
        self.times.waited.saturating_sub(packet.waited.max(self.times.waited_before)) >= timeout
    }

    /// Gives up packets, and returns their owners and whether the packets were sent: those whose replies are missing for so
    /// long; those that were not sent, which are dropped; and those for which no caller waits, since they must hold back
    /// later calls on another connection. The latter are sent all the same, behind the calls that they undo.
    pub(super) fn give_up(&mut self, timeout: Duration) -> Vec<(Owner, bool)> {
        let late = self.pending.iter().take_while(|packet| self.is_late(packet, timeout)).count();
        let out = std::mem::take(&mut self.out);
        let mut sent = self.unanswered - out.len();
        let (mut given_up, mut unsent) = (Vec::with_capacity(self.pending.len()), &*out);
        for (index, mut packet) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            let is_sent = sent >= packet.bytes;
            let is_posted = matches!(packet.owner, Owner::Then(_) | Owner::Nobody);
            if !is_sent && let Some((packet, rest)) = unsent.split_at_checked(packet.bytes) {
                unsent = rest;
                if is_posted {
                    self.out.extend_from_slice(packet);
                }
            }
            sent = sent.saturating_sub(packet.bytes);
            if is_posted || !is_sent || index < late {
                let former = std::mem::replace(&mut packet.owner, Owner::Nobody);
                self.count(&former, false);
                given_up.push((former, is_sent || is_posted));
            }
            if is_sent || is_posted { self.pending.push_back(packet) } else { self.unanswered -= packet.bytes }
        }
        given_up.retain(|(owner, _)| !matches!(owner, Owner::Nobody));
        given_up
    }

    pub(super) fn in_flight(&self) -> usize {
        self.unanswered - self.out.len()
    }

    pub(super) fn may_write(&self) -> bool {
        !self.is_writing && !self.out.is_empty() && self.in_flight() < MOST_UNANSWERED && self.end.is_none()
    }

    /// Whether somebody waits for a reply that is still to come. When it is here, its reader writes what is left.
    pub(super) fn will_be_written(&self) -> bool {
        self.in_flight() > 0 && self.threads + self.tasks > 0
    }

    pub(super) fn become_reader(&mut self) -> bool {
        let is_free = !self.has_reader && self.end.is_none();
        if is_free {
            (self.has_reader, self.times.heartbeat) = (true, machine_now());
        }
        is_free
    }

    /// Whether the connection's own thread must read: somebody waits who does not read.
    pub(super) fn needs_own_thread(&self) -> bool {
        self.tasks + self.listeners > 0 || self.listens_until.is_some_and(|until| machine_now() < until)
    }

    /// Whether the server was silent, and has answered everything now.
    pub(super) fn is_over(&self) -> bool {
        self.silent_since.is_some() && self.pending.is_empty()
    }
}
