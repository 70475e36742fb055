//! The packets of a connection: those to write, and those that are not answered.

use super::slot::Slot;
use crate::clock::machine_now;
use crate::sync::{Arc, fault};
use luagate_core::failure::CallError;
use luagate_core::value::Value;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// While this number of bytes is unanswered nobody writes: the next replies make the reader write the rest.
/// So no write blocks, since every system buffers more for a connection.
const MOST_UNANSWERED: usize = if cfg!(luagate_model) { 10 } else { 64 << 10 };

/// The replies to a packet. `Failed`: it was not sent. `Unknown`: the server may run it.
pub(crate) type PacketOutcome = Result<Vec<Value>, CallError>;

/// Where a caller waits for the replies to its packet.
pub(super) type ReplySlot = Slot<Option<PacketOutcome>>;

#[derive(Default)]
pub(super) struct Packets {
    /// The bytes that nobody has begun to write.
    out: Vec<u8>,
    is_writing: bool,
    /// The packets without all of their replies, in order.
    pending: VecDeque<PendingPacket>,
    /// The bytes of these packets.
    unanswered: usize,
    /// For how many of these packets a thread or a task waits.
    waiters: usize,
    /// The first of these callers stops waiting then, or later.
    next_end: Option<Instant>,
}

struct PendingPacket {
    owner: Owner,
    bytes: usize,
    missing: usize,
    replies: Vec<Value>,
    submitted: Instant,
}

/// The receiver of the replies to a packet.
pub(super) enum Owner {
    /// A thread or a task. It stops waiting at this time.
    Waiter(Arc<ReplySlot>, Instant),
    /// Runs in the thread that reads, so it does not block.
    Then(Box<dyn FnOnce(PacketOutcome) + Send>),
    Nobody,
}

impl Owner {
    pub(super) fn finish(self, outcome: PacketOutcome) {
        match self {
            Owner::Waiter(reply, _) => reply.change(|reply| *reply = Some(outcome)),
            Owner::Then(then) => then(outcome),
            Owner::Nobody => {}
        }
    }

    fn waiters(&self) -> usize {
        usize::from(matches!(self, Owner::Waiter(..)))
    }
}

impl Packets {
    pub(super) fn push(&mut self, packet: &[u8], replies: usize, owner: Owner) {
        if let Owner::Waiter(_, end) = owner {
            self.next_end = earlier(self.next_end, end);
        }
        self.waiters += owner.waiters();
        self.out.extend_from_slice(packet);
        self.unanswered += packet.len();
        self.pending.push_back(PendingPacket {
            owner,
            bytes: packet.len(),
            missing: replies,
            replies: Vec::with_capacity(replies),
            submitted: machine_now(),
        });
    }

    /// Whether all packets are answered.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn waiters(&self) -> usize {
        self.waiters
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        self.next_end
    }

    // Writing.

    pub(super) fn are_written(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.unanswered - self.out.len()
    }

    pub(super) fn may_write(&self) -> bool {
        !self.is_writing && !self.out.is_empty() && self.in_flight() < MOST_UNANSWERED
    }

    /// Whether somebody waits for a reply that is still to come. When it is here, its reader writes what is
    /// left.
    pub(super) fn will_be_written(&self) -> bool {
        (self.in_flight() > 0 || fault!("a packet counts as one that will be answered before it is sent"))
            && self.waiters > 0
    }

    pub(super) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// Nobody else writes until it is set back.
    pub(super) fn set_writing(&mut self, is_writing: bool) {
        self.is_writing = is_writing;
    }

    /// The bytes to write. The caller is the only one that writes, until it returns them.
    pub(super) fn begin_write(&mut self) -> Vec<u8> {
        self.is_writing = !fault!("two threads write");
        std::mem::take(&mut self.out)
    }

    /// They are written. Their memory is used again.
    pub(super) fn end_write(&mut self, mut written: Vec<u8>) {
        self.is_writing = false;
        if self.out.capacity() == 0 {
            written.clear();
            self.out = written;
        }
    }

    // Replies.

    /// Adds a reply to the first packet without all replies. `None`: there is no such packet, or it was not
    /// sent.
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
        let PendingPacket { owner, bytes, replies, .. } = self.pending.pop_front()?;
        if !fault!("answered packets count as unanswered") {
            self.unanswered -= bytes;
        }
        if !fault!("callers count as waiting after their replies") {
            self.waiters -= owner.waiters();
        }
        Some(Some((owner, replies)))
    }

    // Packets without replies.

    /// For how long the first packet is not answered.
    pub(super) fn longest_wait(&self, now: Instant) -> Option<Duration> {
        self.pending.front().map(|packet| now.saturating_duration_since(packet.submitted))
    }

    /// Takes the callers whose time is over.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<Owner> {
        if self.next_end.is_none_or(|end| now < end) || fault!("the time of a caller does not end") {
            return Vec::new();
        }
        self.take(|packet| matches!(packet.owner, Owner::Waiter(_, end) if end <= now))
    }

    /// Takes the callers that have waited for at least `time`, and all posted packets: the caller that posted
    /// one must get an error before later calls use another connection. Packets that are not written
    /// yet are still written, behind the calls that they undo.
    pub(super) fn take_silent(&mut self, now: Instant, time: Duration) -> Vec<Owner> {
        self.take(|packet| match packet.owner {
            Owner::Waiter(..) => now.saturating_duration_since(packet.submitted) >= time,
            Owner::Then(_) => true,
            Owner::Nobody => false,
        })
    }

    /// Takes the owners of these packets. Their replies will be dropped.
    fn take(&mut self, is_taken: impl Fn(&PendingPacket) -> bool) -> Vec<Owner> {
        let mut owners = Vec::new();
        self.next_end = None;
        for packet in &mut self.pending {
            if is_taken(packet) {
                self.waiters -= packet.owner.waiters();
                owners.push(std::mem::replace(&mut packet.owner, Owner::Nobody));
            } else if let Owner::Waiter(_, end) = packet.owner {
                self.next_end = earlier(self.next_end, end);
            }
        }
        owners
    }

    /// The connection has ended. Takes all owners, each with whether its packet was sent. A write may still
    /// go on.
    pub(super) fn take_all(&mut self) -> Vec<(Owner, bool)> {
        let mut sent = self.in_flight();
        let ended = std::mem::replace(self, Packets { is_writing: self.is_writing, ..Packets::default() });
        let owners = ended.pending.into_iter().map(|packet| {
            let is_sent = sent > 0 && !fault!("a packet that was sent counts as not sent");
            sent = sent.saturating_sub(packet.bytes);
            (packet.owner, is_sent)
        });
        owners.collect()
    }
}

fn earlier(first: Option<Instant>, second: Instant) -> Option<Instant> {
    Some(first.map_or(second, |first| first.min(second)))
}
