//! Releases that the server has not confirmed: what `src/lease/releases.rs` does around them.

use super::flights::Answered;
use super::{Client, Thread};
use crate::protocol::call::Packed;
use crate::protocol::lease::Moment;
use crate::protocol::releases::{Ordered, PendingRelease, Steps, ToRelease};
use std::time::Instant;

/// A release in progress, call by call.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    pub(crate) pending: PendingRelease<u64>,
    pub(crate) steps: Steps,
}

impl Client {
    /// Leaves a release to the background thread.
    pub(crate) fn release_later(&mut self, pending: PendingRelease<u64>, now: Moment) {
        self.releases.add([pending]);
        let at = self.releases_at.into_iter().chain([now.instant()]);
        self.releases_at = at.min();
    }

    /// Begins a release, on the connection of the call that it undoes, if that is still open.
    pub(super) fn send_release(
        &mut self,
        thread: Thread,
        mut pending: PendingRelease<u64>,
        until: Option<Instant>,
        now: Moment,
    ) -> Released {
        let (connection, steps) = (pending.connection.take(), pending.steps());
        if let Some(call) = steps.call() {
            self.send(thread, &[call], until, connection, now);
        }
        Released { pending, steps }
    }

    /// Continues a release. Returns its next step, or `None` once it is confirmed. Fails if it is not confirmed.
    pub(super) fn release_answered(
        &mut self,
        thread: Thread,
        mut released: Released,
        answered: Answered,
        until: Option<Instant>,
        now: Moment,
    ) -> Result<Option<Released>, Box<PendingRelease<u64>>> {
        let steps = &mut released.steps;
        if answered.read(|reply| steps.answered(reply)).is_err() {
            return Err(Box::new(released.pending));
        }
        let Some(call) = steps.call() else {
            return Ok(None);
        };
        self.send(thread, &[call], until, None, now);
        Ok(Some(released))
    }

    /// The thread checks what is due.
    pub(super) fn send_releases(&mut self, now: Moment) {
        self.releases_at = None;
        match self.releases.next(now.instant(), |_| 0) {
            ToRelease::Now(mut batch) if batch.len() == 1 => {
                let thread = Thread::Releases;
                let released = self.send_release(thread, batch.remove(0), None, now);
                self.releasing = vec![released];
            }
            ToRelease::Now(batch) => {
                let released = batch.into_iter().map(|pending| Released { steps: pending.steps(), pending });
                self.releasing = released.collect();
                let calls = self.releasing.iter();
                let calls: Vec<Packed> = calls.filter_map(|r| r.steps.call()).collect();
                self.send(Thread::Releases, &calls, None, None, now);
            }
            ToRelease::At(at) => self.releases_at = at,
            ToRelease::Closed => {}
        }
    }

    /// The thread has its replies.
    pub(super) fn released(&mut self, mut answered: Vec<Answered>, now: Moment) {
        let mut releasing = std::mem::take(&mut self.releasing);
        let mut unconfirmed = Vec::new();
        if releasing.len() == 1 {
            let (released, answered) = (releasing.remove(0), answered.remove(0));
            match self.release_answered(Thread::Releases, released, answered, None, now) {
                Ok(Some(released)) => {
                    self.releasing = vec![released];
                    return;
                }
                Ok(None) => {}
                Err(pending) => unconfirmed.push(*pending),
            }
        } else {
            for (mut released, answered) in releasing.into_iter().zip(answered) {
                let steps = &mut released.steps;
                if answered.read(|reply| steps.answered(reply)).is_err() {
                    unconfirmed.push(released.pending);
                }
            }
        }
        self.releases.sent(0, unconfirmed, now.instant());
        self.releases_at = (!self.releases.is_empty()).then_some(now.instant());
        self.settle_all(now);
    }
}

impl Ordered for u64 {
    /// A release is sent alone on its connection, as the threads of the library do it.
    fn is_shared_with(&self, _: &u64) -> bool {
        false
    }
}
