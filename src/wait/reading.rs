//! Who reads a subscription: a waiting thread, so that a grant wakes one thread and not two, or else the subscriber's own.

use crate::clock::machine_now;
use crate::sync::{lock, wait_for};
use crate::transport::subscription::Subscription;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The subscription while nobody reads it.
#[derive(Default)]
pub(super) struct Reading {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Nothing while a thread reads.
    free: Option<Subscription>,
    /// It broke while a waiting thread read it.
    broken: bool,
    /// The subscriber's thread needs it.
    wanted: bool,
    /// Somebody waits who does not read.
    called: bool,
}

/// What the subscriber's thread has of its subscription.
pub(super) enum Turn {
    Reads(Subscription),
    /// A waiting thread reads.
    Rests,
    Broken,
}

impl Reading {
    /// The subscription works.
    pub(super) fn begin(&self, subscription: Subscription) {
        *lock(&self.state) = State {
            free: Some(subscription),
            ..State::default()
        };
    }

    /// The subscription, for a thread that waits for a message.
    pub(super) fn take(&self) -> Option<Subscription> {
        let mut state = lock(&self.state);
        match state.wanted {
            true => None,
            false => state.free.take(),
        }
    }

    /// Whether nobody reads.
    pub(super) fn is_free(&self) -> bool {
        lock(&self.state).free.is_some()
    }

    /// A thread reads no more. Nothing: the subscription is broken.
    pub(super) fn give_back(&self, subscription: Option<Subscription>) {
        let mut state = lock(&self.state);
        state.broken |= subscription.is_none();
        state.free = subscription;
        let is_news = state.broken || state.wanted;
        drop(state);
        if is_news {
            self.changed.notify_one();
        }
    }

    /// Lets the subscriber's thread read.
    pub(super) fn call(&self) {
        lock(&self.state).called = true;
        self.changed.notify_one();
    }

    /// The turn of the subscriber's thread: after `pause`, or as soon as nobody reads where somebody waits who does not read
    /// (`is_needed`). `insists`: it needs the subscription even if a waiting thread reads.
    pub(super) fn turn(&self, pause: Duration, is_needed: bool, insists: bool) -> Turn {
        let end = machine_now() + pause;
        let mut state = lock(&self.state);
        state.wanted = insists;
        state.called |= is_needed;
        loop {
            let left = end.saturating_duration_since(machine_now());
            let is_due = state.called || insists || left.is_zero();
            if state.broken {
                return Turn::Broken;
            }
            if is_due && let Some(subscription) = state.free.take() {
                (state.wanted, state.called) = (false, false);
                return Turn::Reads(subscription);
            }
            if left.is_zero() {
                return Turn::Rests;
            }
            state = wait_for(&self.changed, state, left);
        }
    }
}
