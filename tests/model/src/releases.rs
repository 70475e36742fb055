//! In place of the library's `lease::releases`: the releases of the one id that waits.

use crate::engine::mode::Mode;
use crate::engine::slot::Slot;
use crate::engine::worker::{Job, NextWork, Worker};
use crate::protocol::releases::{self, ReleaseCall, Steps};
use crate::remote::Remote;
use redis::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

pub(crate) type PendingRelease = releases::PendingRelease<()>;

pub(crate) struct Releases {
    remote: Arc<Remote>,
    worker: Worker,
    state: Slot<ReleaseState>,
}

#[derive(Default)]
struct ReleaseState {
    pending: VecDeque<PendingRelease>,
    /// How many are being sent by the gate's own thread.
    current: usize,
    is_closed: bool,
}

impl Releases {
    pub(crate) fn new(remote: &Arc<Remote>, worker: &Worker) -> Arc<Releases> {
        Arc::new(Releases {
            remote: remote.clone(),
            worker: worker.clone(),
            state: Slot::of_machine(&remote.foreign, ReleaseState::default()),
        })
    }

    pub(crate) fn of_open_gate(releases: &Weak<Releases>) -> Option<Arc<Releases>> {
        releases.upgrade().filter(|releases| !releases.state.look(|state| state.is_closed))
    }

    pub(crate) fn close(&self) {
        self.state.change(|state| state.is_closed = true);
        self.worker.call();
    }

    /// One call is sent behind all earlier calls. More than one are sent by the gate's own thread.
    pub(crate) fn post(self: &Arc<Releases>, pending: PendingRelease) {
        if pending.is_one_call() {
            let steps = pending.steps();
            drop(self.remote.send(move |remote| run(&pending.id, &steps, remote)));
            return;
        }
        self.state.change(|state| state.pending.push_back(pending));
        self.worker.call();
    }

    /// Waits until the releases that take more than one call are confirmed. Sends them, unless the gate's own thread does.
    pub(crate) async fn settle(&self) {
        loop {
            let next = self.state.until(None, Mode::Async, |state| match state.pending.pop_front() {
                None if state.current > 0 => None,
                next => Some(next),
            });
            let Some(pending) = next.await.flatten() else {
                return;
            };
            Unconfirmed { releases: self, pending: Some(pending), is_current: false }.send().await;
        }
    }

    async fn send_next(self: Arc<Releases>, pending: PendingRelease) {
        Unconfirmed { releases: &self, pending: Some(pending), is_current: true }.send().await;
    }
}

/// The next call of the release of this id.
fn run(id: &str, steps: &Steps, remote: &Remote) -> Value {
    match steps.next {
        ReleaseCall::LookUp => remote.look(|semaphore| semaphore.look_up(id)),
        ReleaseCall::Release(fence) => remote.release(id, fence),
        ReleaseCall::Nothing => unreachable!("it is over"),
    }
}

/// A release that is being sent. If this is dropped before its end, it is repeated.
struct Unconfirmed<'a> {
    releases: &'a Releases,
    pending: Option<PendingRelease>,
    is_current: bool,
}

impl Unconfirmed<'_> {
    async fn send(mut self) {
        let pending = self.pending.clone().unwrap();
        let mut steps = pending.steps();
        while steps.next != ReleaseCall::Nothing {
            let (id, next) = (pending.id.clone(), steps.clone());
            let reply = self.releases.remote.ask(move |remote| run(&id, &next, remote)).await;
            pending.answered(&mut steps, reply).unwrap();
        }
        self.pending = None;
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        self.releases.state.change(|state| {
            state.current -= usize::from(self.is_current);
            state.pending.extend(self.pending.take());
        });
        self.releases.worker.call();
    }
}

impl Job for Releases {
    fn work(self: Arc<Releases>) -> NextWork {
        let (next, is_over) = self.state.change(|state| {
            let next = if state.current == 0 { state.pending.pop_front() } else { None };
            state.current += usize::from(next.is_some());
            (next, state.is_closed && state.current == 0)
        });
        if let Some(next) = next {
            self.worker.spawn(self.clone().send_next(next));
        }
        if is_over { NextWork::Never } else { NextWork::At(None) }
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        self.remote.close();
    }
}
