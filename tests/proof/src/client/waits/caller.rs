//! A caller: the work of its thread, and the messages to it.

use super::waiting::Waiting;
use crate::client::held::Change;
use crate::client::pending::Released;
use crate::client::{Patience, Want};
use crate::protocol::inbox::{Mailbox, Received};
use crate::protocol::keys::LatchKeys;
use crate::protocol::lease::Moment;
use crate::protocol::waiter::{LatchTarget, PermitTarget};
use std::time::Instant;

/// The task of a caller's thread.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Waits until an earlier release of its fixed id is confirmed.
    Settles(Box<Settles>),
    /// Asks once.
    Tries { want: Want, target: Box<PermitTarget> },
    /// Asks once for permits of several semaphores.
    TriesAll(Vec<Want>),
    /// Waits in line.
    Waits(Box<Waiting<PermitTarget>>, Want),
    /// Releases what the server may have granted to an ended wait.
    GivesBack {
        waiting: Box<Waiting<PermitTarget>>,
        want: Want,
        why: String,
        released: Box<Released>,
        until: Instant,
        later: bool,
    },
    /// Waits for a latch.
    Watches {
        waiting: Box<Waiting<LatchTarget>>,
        keys: LatchKeys,
        patience: Patience,
        /// In true time.
        begun: u64,
    },
    /// Changes a permit that it holds.
    Changes(Change),
}

#[derive(Clone, Debug)]
pub(crate) struct Settles {
    pub(super) want: Want,
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// The release whose reply it awaits; `None`: another thread awaits it.
    pub(super) released: Option<Released>,
}

impl Caller {
    /// The permits that it wants.
    pub(crate) fn want(&self) -> Option<&Want> {
        match self {
            Caller::Settles(settles) => Some(&settles.want),
            Caller::Tries { want, .. } | Caller::Waits(_, want) => Some(want),
            Caller::GivesBack { want, .. } => Some(want),
            Caller::TriesAll(wants) => wants.first(),
            Caller::Watches { .. } | Caller::Changes(_) => None,
        }
    }

    /// The same, for each semaphore.
    pub(crate) fn wants(&self) -> &[Want] {
        match self {
            Caller::TriesAll(wants) => wants,
            other => other.want().map_or(&[], std::slice::from_ref),
        }
    }

    /// The permits that it may still be granted.
    pub(crate) fn asks_for(&self) -> Option<&Want> {
        match self {
            Caller::GivesBack { .. } => None,
            other => other.want(),
        }
    }

    /// When it continues, unless it awaits a reply.
    pub(in crate::client) fn wakes_at(&self) -> Option<Instant> {
        match self {
            Caller::Settles(settles) => Some(settles.until),
            Caller::Waits(waiting, _) => waiting.sleeps.map(|(_, wakes)| wakes),
            Caller::Watches { waiting, .. } => waiting.sleeps.map(|(_, wakes)| wakes),
            Caller::Tries { .. } | Caller::TriesAll(_) | Caller::GivesBack { .. } | Caller::Changes(_) => None,
        }
    }

    fn mailbox(&mut self) -> Option<&mut Mailbox> {
        match self {
            Caller::Waits(waiting, _) | Caller::GivesBack { waiting, .. } => Some(&mut waiting.mailbox),
            Caller::Watches { waiting, .. } => Some(&mut waiting.mailbox),
            _ => None,
        }
    }

    fn rouse(&mut self, now: Moment) {
        match self {
            Caller::Waits(waiting, _) => waiting.rouse(now),
            Caller::Watches { waiting, .. } => waiting.rouse(now),
            _ => {}
        }
    }

    /// Delivers a message that may be for it.
    pub(in crate::client) fn put(&mut self, channel: &str, received: &Received, now: Moment) -> bool {
        let mailbox = self.mailbox();
        let is_mine = mailbox.is_some_and(|mailbox| mailbox.put(channel, received, now));
        self.rouse(now);
        is_mine
    }

    /// It may have missed messages.
    pub(in crate::client) fn call(&mut self, now: Moment) {
        if let Some(mailbox) = self.mailbox() {
            mailbox.called = true;
        }
        self.rouse(now);
    }

    /// Cancels its wait.
    pub(crate) fn cancel(&mut self, now: Moment) {
        if let Some(mailbox) = self.mailbox() {
            mailbox.cancelled = true;
        }
        self.rouse(now);
    }
}
