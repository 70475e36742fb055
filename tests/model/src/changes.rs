//! A value that changes, and the threads and tasks that wait for a change.

use crate::engine::mode::{Mode, block};
use crate::engine::slot::Slot;
use crate::foreign;
use crate::world::{fail, is_missed, now, spawn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// The times of all changes.
pub(crate) struct Changes(Slot<Vec<Instant>>);

impl Changes {
    pub(crate) fn new() -> Arc<Changes> {
        Arc::new(Changes(Slot::of_machine(&foreign::new(), Vec::new())))
    }

    pub(crate) fn change(&self) {
        self.0.change(|changes| changes.push(now()));
    }

    /// `count` changes happen, each at any point.
    pub(crate) fn changes(self: &Arc<Changes>, count: usize) {
        for _ in 0..count {
            let changes = self.clone();
            spawn("change", true, move || changes.change());
        }
    }

    /// Blocks until there were `count` changes, or the time is over.
    pub(crate) fn wait(&self, count: usize, limit: Option<Duration>) {
        let latest = limit.map(|limit| now() + limit);
        block(|mode| self.until(count, latest, mode));
    }

    /// As `wait`, for a task.
    pub(crate) async fn changed(&self, count: usize) {
        self.until(count, None, Mode::Async).await;
    }

    /// As `wait`, for work of the gate's own thread.
    pub(crate) async fn changed_for_worker(&self, count: usize) {
        self.until(count, None, Mode::Worker).await;
    }

    /// As `changed`, for a task that was polled with another waker before.
    pub(crate) async fn changed_elsewhere(&self, count: usize) {
        let mut changed = pin!(self.changed(count));
        if changed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            changed.await;
        }
    }

    async fn until(&self, count: usize, latest: Option<Instant>, mode: Mode) {
        let begun = now();
        let found = self.0.until(latest, mode, |changes| changes.get(count - 1).copied()).await;
        match (found, latest) {
            (Some(at), _) if is_missed(at.max(begun)) => {
                fail("a waiter was woken too late by a change".into())
            }
            (_, Some(latest)) if is_missed(latest) => {
                fail("a waiter was woken too late by its deadline".into())
            }
            (None, Some(latest)) if now() >= latest => {}
            (None, _) => fail("a waiter gave up too early".into()),
            (Some(_), _) => {}
        }
    }
}
