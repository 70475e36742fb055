//! Releases that the server has not confirmed: what `src/lease/releases.rs` does around them.

use super::flights::{Answered, Connection};
use super::{Client, Thread};
use crate::protocol::call::Packed;
use crate::protocol::inbox::GivenUpNumber;
use crate::protocol::lease::Moment;
use crate::protocol::releases::{PendingRelease, Steps, ToRelease};
use crate::protocol::routing::NodeId;
use std::time::Instant;

/// A release in progress, call by call.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    pub(crate) pending: PendingRelease<Connection>,
    pub(crate) steps: Steps,
    /// All its calls are sent on this connection, behind the call that it undoes.
    behind: Option<Connection>,
    /// The wait that is forgotten when it is confirmed.
    pub(crate) given_up: Option<GivenUpNumber>,
}

impl Client {
    /// Leaves a release to the gate's own thread. If its server still has releases to confirm, that thread waits for them.
    pub(crate) fn release_later(&mut self, pending: PendingRelease<Connection>, now: Moment) {
        if !self.releases.current.contains_key(&self.node_of(pending.keys.list()[0].as_bytes())) {
            let at = self.releases_at.into_iter().chain([now.instant()]);
            self.releases_at = at.min();
        }
        self.releases.add([pending]);
    }

    /// Begins a release, on the connection of the call that it undoes, if that is still open.
    pub(super) fn send_release(
        &mut self,
        thread: Thread,
        mut pending: PendingRelease<Connection>,
        until: Option<Instant>,
        now: Moment,
    ) -> Released {
        let (behind, given_up) = pending.take_connection(|_| true);
        let steps = pending.steps();
        if let Some(call) = steps.call() {
            self.send(thread, &[call], until, behind, now);
        }
        Released { pending, steps, behind, given_up }
    }

    /// Continues a release. Returns its next step, or `None` once it is confirmed. Fails if it is not confirmed.
    pub(super) fn release_answered(
        &mut self,
        thread: Thread,
        mut released: Released,
        answered: Answered,
        until: Option<Instant>,
        now: Moment,
    ) -> Result<Option<Released>, Box<PendingRelease<Connection>>> {
        let steps = &mut released.steps;
        if answered.read(|reply| steps.answered(reply)).is_err() {
            return Err(Box::new(released.pending));
        }
        let Some(call) = steps.call() else {
            self.forget_wait(released.given_up);
            return Ok(None);
        };
        self.send(thread, &[call], until, released.behind, now);
        Ok(Some(released))
    }

    fn forget_wait(&mut self, given_up: Option<GivenUpNumber>) {
        given_up.map(|number| self.inbox.forget(number));
    }

    /// The gate's own thread sends what is due, one batch to each server.
    pub(super) fn send_releases(&mut self, now: Moment) {
        let slots = self.slots.clone();
        let node_of = |pending: &PendingRelease<Connection>| {
            slots.as_ref().map_or(0, |slots| slots.node_of(pending.keys.list()[0].as_bytes()))
        };
        self.releases_at = loop {
            match self.releases.next(now.instant(), node_of) {
                ToRelease::Now(node, batch) => self.send_batch(node, batch, now),
                ToRelease::At(at) => break at,
                ToRelease::Closed => break None,
            }
        };
    }

    fn send_batch(&mut self, node: NodeId, mut batch: Vec<PendingRelease<Connection>>, now: Moment) {
        let thread = Thread::Releases(node);
        let releasing = if batch.len() == 1 {
            vec![self.send_release(thread, batch.remove(0), None, now)]
        } else {
            let released = |mut pending: PendingRelease<_>| {
                let (behind, given_up) = pending.take_connection(|_| true);
                Released { steps: pending.steps(), pending, behind, given_up }
            };
            let releasing: Vec<Released> = batch.into_iter().map(released).collect();
            let calls: Vec<Packed> = releasing.iter().filter_map(|released| released.steps.call()).collect();
            self.send(thread, &calls, None, None, now);
            releasing
        };
        self.releasing.insert(node, releasing);
    }

    /// A batch has its replies.
    pub(super) fn released(&mut self, node: NodeId, mut answered: Vec<Answered>, now: Moment) {
        let mut releasing = self.releasing.remove(&node).unwrap_or_default();
        let mut unconfirmed = Vec::new();
        if releasing.len() == 1 {
            let (released, answered) = (releasing.remove(0), answered.remove(0));
            match self.release_answered(Thread::Releases(node), released, answered, None, now) {
                Ok(Some(released)) => {
                    self.releasing.insert(node, vec![released]);
                    return;
                }
                Ok(None) => {}
                Err(pending) => unconfirmed.push(*pending),
            }
        } else {
            for (mut released, answered) in releasing.into_iter().zip(answered) {
                let steps = &mut released.steps;
                match answered.read(|reply| steps.answered(reply)) {
                    Ok(()) => self.forget_wait(released.given_up),
                    Err(_) => unconfirmed.push(released.pending),
                }
            }
        }
        self.releases.sent(node, unconfirmed, now.instant());
        self.releases_at = (!self.releases.is_empty()).then_some(now.instant());
        self.settle_all(now);
    }
}
