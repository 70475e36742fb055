//! Gives back the grants of futures that are not polled. Such a future may be one of several in a `select`, while its
//! task works on another one ("futurelock"). Its grant would block all other callers.

use super::mailbox::Mailbox;
use crate::aio::lease::releases::{PendingRelease, Releases};
use crate::clock::{Alarm, Clock};
use crate::protocol::keys::Keys;
use crate::protocol::releases::Target;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A grant is given back if its future is not polled for this long after it was woken.
const UNPOLLED: Duration = Duration::from_secs(1);

/// The interval at which the futures are checked.
const INTERVAL: Duration = Duration::from_millis(250);

/// The futures of a gate that may get a grant.
pub(in crate::aio) struct Futures {
    clock: Clock,
    state: Mutex<State>,
    check: Alarm,
}

#[derive(Default)]
struct State {
    futures: BTreeMap<u64, Arc<Polled>>,
    last: u64,
    /// The task looks again without being woken.
    looks: bool,
    closed: bool,
}

/// One future: when it was woken, and the permits that it asks for.
pub(in crate::aio) struct Polled {
    clock: Clock,
    state: Mutex<Future>,
}

#[derive(Default)]
struct Future {
    waker: Option<Waker>,
    /// When it was woken, unless it was polled since.
    woken: Option<Instant>,
    is_polling: bool,
    /// Its grant is given back. It must ask again.
    is_given_back: bool,
    asked: Vec<Asked>,
    held: Vec<Held>,
}

/// A permit that a future already holds while it waits for others. The function ends its renewal.
pub(in crate::aio) type Held = Box<dyn Fn() + Send>;

/// The permits of one semaphore that a future asks for.
pub(in crate::aio) struct Asked {
    pub(super) keys: Keys,
    pub(super) id: String,
    /// How long the server may keep a grant.
    pub(super) longest: Duration,
    pub(super) mailbox: Option<Arc<Mailbox>>,
}

impl Wake for Polled {
    fn wake(self: Arc<Polled>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Polled>) {
        let mut future = lock(&self.state);
        future.woken.get_or_insert_with(|| self.clock.now());
        let waker = future.waker.clone();
        drop(future);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Polled {
    fn future(&self) -> MutexGuard<'_, Future> {
        lock(&self.state)
    }

    /// From now on the future asks for these permits.
    pub(in crate::aio) fn asks(&self, asked: Vec<Asked>) {
        self.future().asked = asked;
    }

    /// The permits that the future holds meanwhile.
    pub(in crate::aio) fn holds(&self, held: Vec<Held>) {
        self.future().held = held;
    }

    /// Whether a grant that the future receives now is given back already.
    pub(in crate::aio) fn is_given_back(&self) -> bool {
        self.future().is_given_back
    }

    /// The pending releases of this future have ended, and it asks again.
    pub(in crate::aio) fn asks_again(&self) {
        self.future().is_given_back = false;
    }

    /// If the future was woken but not polled for too long, returns the releases of its
    /// grants.
    fn check(&self, now: Instant) -> Vec<PendingRelease> {
        let mut future = self.future();
        let is_late = future.woken.is_some_and(|woken| now.saturating_duration_since(woken) >= UNPOLLED);
        if !is_late || future.is_polling || future.is_given_back || future.asked.is_empty() {
            return Vec::new();
        }
        future.is_given_back = true;
        future.held.iter().for_each(|end_renewal| end_renewal());
        future.asked.iter().flat_map(|asked| asked.give_back(now)).collect()
    }
}

impl Asked {
    /// A permit of this semaphore, by a call that does not wait.
    pub(in crate::aio) fn of(keys: &Keys, id: &str, longest: Duration) -> Asked {
        Asked { keys: keys.clone(), id: id.to_owned(), longest, mailbox: None }
    }

    /// A grant that a message brought, or else one that an unread reply may contain.
    fn give_back(&self, now: Instant) -> Vec<PendingRelease> {
        let fences = self.mailbox.as_ref().map(|mailbox| mailbox.take_grants()).unwrap_or_default();
        let targets = match fences.is_empty() {
            true => vec![Target::Held],
            false => fences.into_iter().map(Target::Fence).collect(),
        };
        let until = now.checked_add(self.longest);
        let pending = targets.into_iter().map(|target| PendingRelease {
            keys: self.keys.clone(),
            id: self.id.clone(),
            target,
            connection: None,
            until,
        });
        pending.collect()
    }
}

impl Futures {
    pub(in crate::aio) fn new(clock: &Clock) -> Futures {
        Futures { clock: clock.clone(), state: Mutex::default(), check: Alarm::new(clock) }
    }

    /// Watches `future`, which gets its own state.
    pub(in crate::aio) fn watch<'a, F>(
        self: &'a Arc<Futures>,
        future: impl FnOnce(Arc<Polled>) -> F,
    ) -> Watched<'a, F> {
        let polled = Arc::new(Polled { clock: self.clock.clone(), state: Mutex::default() });
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        state.futures.insert(number, polled.clone());
        // A test that moves the clock decides itself when it polls.
        let wakes = !state.looks && !self.clock.is_moved();
        state.looks |= wakes;
        drop(state);
        if wakes {
            self.check.wake();
        }
        let future = Box::pin(future(polled.clone()));
        Watched { futures: self, number, waker: Waker::from(polled.clone()), polled, future }
    }

    /// The loop of the gate's task.
    pub(in crate::aio) async fn work(&self, releases: &Releases) {
        let mut next = None;
        loop {
            let due = || {
                let State { closed, looks, .. } = *lock(&self.state);
                match next {
                    _ if closed => Ok(false),
                    Some(at) if at > self.clock.now() => Err(Some(at)),
                    None if !looks => Err(None),
                    _ => Ok(true),
                }
            };
            if !self.check.until(due).await {
                return;
            }
            let now = self.clock.now();
            let mut state = lock(&self.state);
            // After it was woken, the task looks once more: that future may have ended already, and the next one would wake
            // the task again.
            state.looks = next.is_none() || !state.futures.is_empty();
            next = state.looks.then_some(now + INTERVAL);
            let futures: Vec<_> = state.futures.values().cloned().collect();
            drop(state);
            let given_back: Vec<_> = futures.iter().flat_map(|future| future.check(now)).collect();
            if !given_back.is_empty() {
                releases.later(given_back);
            }
        }
    }

    /// Ends the loop of the task.
    pub(in crate::aio) fn close(&self) {
        lock(&self.state).closed = true;
        self.check.wake();
    }
}

/// A future that is watched.
pub(in crate::aio) struct Watched<'a, F> {
    futures: &'a Futures,
    number: u64,
    polled: Arc<Polled>,
    waker: Waker,
    future: Pin<Box<F>>,
}

impl<F: std::future::Future> std::future::Future for Watched<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<F::Output> {
        {
            let mut future = self.polled.future();
            (future.woken, future.is_polling) = (None, true);
            match &mut future.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                waker => *waker = Some(cx.waker().clone()),
            }
        }
        let this = &mut *self;
        let polled = this.future.as_mut().poll(&mut Context::from_waker(&this.waker));
        this.polled.future().is_polling = false;
        polled
    }
}

impl<F> Drop for Watched<'_, F> {
    fn drop(&mut self) {
        lock(&self.futures.state).futures.remove(&self.number);
        // Its mailbox keeps the waker of this future. Without this, each would keep the other alive.
        let asked = std::mem::take(&mut self.polled.future().asked);
        drop(asked);
    }
}
