//! A semaphore with one permit, as the scripts keep it.

use crate::engine::slot::Slot;
use crate::world::{beginning, now};
use luagate_core::inbox::{Mailbox, Message};
use luagate_core::semaphore::{AcquireAnswer, Grant, Usage};
use std::sync::Arc;

pub(crate) type Inbox = Arc<Slot<Mailbox>>;

pub(crate) const LEASE_MS: u64 = 1_000_000;

const USAGE: Usage = Usage { in_use: 1, limit: 1 };

#[derive(Default)]
pub(crate) struct Semaphore {
    holder: Option<(String, u64)>,
    line: Vec<Waiting>,
    last_fence: u64,
}

struct Waiting {
    id: String,
    ticket: u64,
    /// `None`: no message is sent. The other client waits for `Remote::changed`.
    inbox: Option<Inbox>,
}

fn server_ms() -> u64 {
    1_000 + (now() - beginning()).as_millis() as u64
}

impl Semaphore {
    /// The fence of this holder. `None`: the id does not hold the permit.
    pub(crate) fn fence_of(&self, id: &str) -> Option<u64> {
        self.holder.as_ref().filter(|(holder, _)| holder == id).map(|(_, fence)| *fence)
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.holder.is_none() && self.line.is_empty()
    }

    fn next_fence(&mut self) -> u64 {
        self.last_fence = (self.last_fence + 1).max(server_ms() * 1_000);
        self.last_fence
    }

    fn grant(&self, fence: u64) -> Grant {
        let now = server_ms();
        Grant { permits: 1, fence, expires_at: Some(now + LEASE_MS), now }
    }

    /// `ticket`: 0, or that of an earlier answer. `inbox`: for a caller that waits in line.
    pub(crate) fn acquire(
        &mut self,
        id: &str,
        ticket: u64,
        in_line: bool,
        inbox: Option<&Inbox>,
    ) -> AcquireAnswer {
        if let Some(fence) = self.fence_of(id) {
            return AcquireAnswer::Held(self.grant(fence), USAGE);
        }
        if self.holder.is_none() && self.line.first().is_none_or(|first| first.id == id) {
            self.line.retain(|waiting| waiting.id != id);
            let fence = self.next_fence();
            self.holder = Some((id.to_owned(), fence));
            return AcquireAnswer::Granted(self.grant(fence), USAGE);
        }
        let waiting = self.line.len() as u64;
        if !in_line {
            return AcquireAnswer::Denied { next_expiry: None, usage: USAGE, waiting, now: server_ms() };
        }
        let place = self.line.extract_if(.., |waiting| waiting.id == id).next();
        let ticket = match place {
            Some(place) => place.ticket,
            None if ticket > 0 => ticket,
            None => self.next_fence(),
        };
        let position = self.line.partition_point(|other| other.ticket < ticket);
        self.line.insert(position, Waiting { id: id.to_owned(), ticket, inbox: inbox.cloned() });
        let (position, now) = (position as u64 + 1, server_ms());
        AcquireAnswer::Queued { ticket, position, retry_after: 5_000, usage: USAGE, now }
    }

    /// Releases the permit, or the place in line. `fence`: only the permit with this fence, or the place with
    /// this ticket. Returns the message that the next holder gets.
    pub(crate) fn release(&mut self, id: &str, fence: Option<u64>) -> Option<(Inbox, Message)> {
        let is_it = |number: u64| fence.is_none_or(|fence| fence == number);
        if self.line.extract_if(.., |waiting| waiting.id == id && is_it(waiting.ticket)).count() > 0 {
            return None;
        }
        if !self.fence_of(id).is_some_and(is_it) {
            return None;
        }
        self.holder = None;
        let mut message = None;
        if !self.line.is_empty() {
            let Waiting { id, inbox, .. } = self.line.remove(0);
            let fence = self.next_fence();
            self.holder = Some((id.clone(), fence));
            let Grant { expires_at: at, now, .. } = self.grant(fence);
            message = inbox.map(|inbox| (inbox, Message { id, permits: 1, fence, at, now }));
        }
        message
    }
}
