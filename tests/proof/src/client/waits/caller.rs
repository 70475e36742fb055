//! A caller: the work of its thread, and the messages to it.

use super::waiting::Waiting;
use crate::client::held::Change;
use crate::client::{Patience, Want, Why};
use crate::protocol::inbox::{Mailbox, Received};
use crate::protocol::keys::LatchKeys;
use crate::protocol::latch_target::LatchTarget;
use crate::protocol::lease::Moment;
use crate::protocol::outbox::Mark;
use crate::protocol::waiter::PermitTarget;
use std::time::Instant;

/// The task of a caller's thread.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Waits for the releases that precede its call.
    Settles(Box<Settles>),
    /// Asks once. `is_again`: once more, because of a late release.
    Tries { want: Want, target: Box<PermitTarget>, mark: Mark, is_again: bool },
    /// Asks once for permits of several semaphores.
    TriesAll(Vec<Want>),
    /// Waits in line.
    Waits(Box<Waiting<PermitTarget>>, Want),
    /// Releases what the server may have granted to an ended wait.
    GivesBack {
        waiting: Box<Waiting<PermitTarget>>,
        want: Want,
        why: Why,
        release: u64,
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
    pub(crate) want: Want,
    pub(crate) since: Instant,
    pub(crate) until: Option<Instant>,
    /// It is made once more: the releases before this moment precede it.
    pub(crate) after: Option<Mark>,
    /// A release of another id has failed.
    pub(crate) only_own: bool,
    /// The releases that it sends, and whether one is of its own id.
    pub(crate) sends: Option<(Vec<u64>, bool)>,
    pub(crate) then: Then,
}

/// What follows.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    Begin,
    TryAgain(Box<PermitTarget>),
    AskAgain(Box<Waiting<PermitTarget>>),
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
            Caller::Settles(settles) => settles.until,
            Caller::Waits(waiting, _) => waiting.sleeps.map(|(_, wakes)| wakes),
            Caller::Watches { waiting, .. } => waiting.sleeps.map(|(_, wakes)| wakes),
            Caller::Tries { .. } | Caller::TriesAll(_) | Caller::GivesBack { .. } | Caller::Changes(_) => {
                None
            }
        }
    }

    fn mailbox(&mut self) -> Option<&mut Mailbox> {
        match self {
            Caller::Waits(waiting, _) | Caller::GivesBack { waiting, .. } => Some(&mut waiting.mailbox),
            Caller::Settles(settles) => match &mut settles.then {
                Then::AskAgain(waiting) => Some(&mut waiting.mailbox),
                Then::Begin | Then::TryAgain(_) => None,
            },
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
