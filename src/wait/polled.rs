//! Gives back the grants of futures that are not polled. Such a future may be one of several in a `select`, while its
//! task works on another one ("futurelock"). Its grant would block all other callers.

use crate::clock::Clock;
use crate::engine::slot::Slot;
use crate::engine::worker::{Job, NextWork, Worker};
use crate::lease::releases::{PendingRelease, Releases};
use crate::protocol::inbox::{Mailbox, Message};
use crate::protocol::keys::Keys;
use crate::protocol::releases::ReleaseTarget;
use crate::sync::{Arc, Mutex, MutexGuard, fault, lock};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A grant is given back if its future is not polled for this long after it was woken. While it is not polled, this is
/// repeated after each such time, since a grant may come later.
pub(crate) const UNPOLLED: Duration = Duration::from_secs(1);

/// The interval at which the futures are checked.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);

/// If more futures than this are late, the machine is busy, and most of them will be polled soon: they get more time. No
/// more lose their grants at a time.
pub(crate) const FEW: usize = 32;
pub(crate) const UNPOLLED_OF_MANY: Duration = Duration::from_secs(10);

/// The futures of a gate that may get a grant.
pub(crate) struct Futures {
    clock: Clock,
    worker: Worker,
    releases: Weak<Releases>,
    state: Mutex<WatchedFutures>,
}

#[derive(Default)]
struct WatchedFutures {
    futures: BTreeMap<u64, Arc<Polled>>,
    last: u64,
    /// When the gate's own thread looks at them next.
    looks_at: Option<Instant>,
}

/// One future: when it was woken, and the permits that it asks for.
pub(crate) struct Polled {
    clock: Clock,
    state: Mutex<Future>,
}

#[derive(Default)]
struct Future {
    waker: Option<Arc<Waker>>,
    /// When it was woken, unless it was polled since.
    woken: Option<Instant>,
    is_polling: bool,
    /// The releases of its grants are being posted. It is not polled before they are: its next call comes after them.
    is_giving_back: bool,
    /// Its grant is given back. It must ask again.
    is_given_back: bool,
    /// It has asked again since then. The message of the grant that was given back may still arrive.
    has_asked_again: bool,
    asked: Vec<Asked>,
    held: Vec<Held>,
}

/// A permit that a future already holds while it waits for others. The function ends its renewal.
pub(crate) type Held = Box<dyn Fn() + Send>;

/// The permits of one semaphore that a future asks for.
pub(crate) struct Asked {
    pub(crate) keys: Keys,
    pub(crate) id: String,
    pub(crate) is_own_id: bool,
    /// How long the server may keep a grant.
    pub(crate) longest: Duration,
    pub(crate) mailbox: Option<Arc<Slot<Mailbox>>>,
}

impl Future {
    fn has_waker(&self, waker: &Waker) -> bool {
        self.waker.as_ref().is_some_and(|known| known.will_wake(waker))
    }
}

impl Wake for Polled {
    fn wake(self: Arc<Polled>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Polled>) {
        let mut future = lock(&self.state);
        if !fault!("a future is not late although it was woken") {
            future.woken.get_or_insert_with(|| self.clock.now());
        }
        let waker = future.waker.clone();
        drop(future);
        if let Some(waker) = waker {
            waker.wake_by_ref();
        }
    }
}

impl Polled {
    fn future(&self) -> MutexGuard<'_, Future> {
        lock(&self.state)
    }

    /// From now on the future asks for these permits.
    pub(crate) fn asks(&self, asked: Vec<Asked>) {
        self.future().asked = asked;
    }

    /// The permits that the future holds meanwhile.
    pub(crate) fn holds(&self, held: Vec<Held>) {
        self.future().held = held;
    }

    /// Whether a grant that the future receives now is given back already.
    pub(crate) fn is_given_back(&self) -> bool {
        self.future().is_given_back
    }

    /// The future has its grant. Returns whether it keeps it: if it was not given back yet, it is not any more.
    pub(crate) fn keeps_grant(&self) -> bool {
        let mut future = self.future();
        let is_kept = !future.is_given_back || fault!("a future that is given back keeps its grant");
        if is_kept {
            future.asked.clear();
        }
        is_kept
    }

    /// The pending releases of this future have ended, and it asks again.
    pub(crate) fn asks_again(&self) {
        let mut future = self.future();
        (future.is_given_back, future.has_asked_again) = (false, true);
    }

    /// Whether this may be the message of a grant that was given back before this future asked again. Only a call shows it.
    pub(crate) fn doubts(&self, message: &Message) -> bool {
        !fault!("a future uses a grant that it has given back") && message.fence > 0 && self.future().has_asked_again
    }

    /// Whether the future was woken and not polled for this time, and may have a grant.
    fn is_late(&self, now: Instant, time: Duration) -> bool {
        let future = self.future();
        let is_late = future.woken.is_some_and(|woken| now.saturating_duration_since(woken) >= time);
        let is_done = future.is_given_back && fault!("a future gives back its grants only once");
        is_late && !future.is_polling && !future.asked.is_empty() && !is_done
    }

    /// Posts the releases of its grants, unless it is polled now.
    fn give_back(self: &Arc<Polled>, now: Instant, releases: &Arc<Releases>) -> bool {
        let mut future = self.future();
        if future.woken.is_none() || future.is_polling || future.asked.is_empty() {
            return false;
        }
        (future.is_given_back, future.is_giving_back, future.woken) = (true, true, Some(now));
        future.held.iter().for_each(|end_renewal| end_renewal());
        let pending: Vec<_> = future.asked.iter().flat_map(|asked| asked.give_back(now)).collect();
        drop(future);
        pending.into_iter().for_each(|pending| releases.post(pending));
        self.future().is_giving_back = false;
        true
    }
}

impl Asked {
    /// A grant that a message brought, or else one that an unread reply may contain.
    fn give_back(&self, now: Instant) -> Vec<PendingRelease> {
        let fences = self.mailbox.as_ref().map(|mailbox| mailbox.look(Mailbox::take_grants)).unwrap_or_default();
        let targets = if fences.is_empty() {
            vec![ReleaseTarget::Held]
        } else {
            fences.into_iter().map(ReleaseTarget::Fence).collect()
        };
        let until = now.checked_add(self.longest);
        let pending = |target| PendingRelease::of_grant(&self.keys, &self.id, self.is_own_id, target, until);
        targets.into_iter().map(pending).collect()
    }
}

impl Futures {
    pub(crate) fn new(clock: &Clock, worker: Worker, releases: &Arc<Releases>) -> Futures {
        Futures { clock: clock.clone(), worker, releases: Arc::downgrade(releases), state: Mutex::default() }
    }

    /// Watches `future`, which gets its own state.
    pub(crate) fn watch<'a, F>(&'a self, future: impl FnOnce(Arc<Polled>) -> F) -> Watched<'a, F> {
        let polled = Arc::new(Polled { clock: self.clock.clone(), state: Mutex::default() });
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        state.futures.insert(number, polled.clone());
        // A test that moves the clock decides itself when it polls.
        if state.looks_at.is_none() && !self.clock.is_moved() {
            let at = self.clock.now() + INTERVAL;
            state.looks_at = Some(at);
            drop(state);
            self.worker.call_at(at);
        }
        let future = Box::pin(future(polled.clone()));
        Watched { futures: self, number, waker: Waker::from(polled.clone()), polled, future }
    }
}

impl Job for Futures {
    fn work(self: Arc<Futures>) -> NextWork {
        let Some(releases) = Releases::of_open_gate(&self.releases) else {
            return NextWork::Never;
        };
        let now = self.clock.now();
        let mut state = lock(&self.state);
        if state.looks_at.is_none_or(|at| now < at) {
            return NextWork::At(state.looks_at);
        }
        // It looks once more after the last future has ended: the next one would wake the thread again.
        let futures: Vec<_> = state.futures.values().cloned().collect();
        let looks = !futures.is_empty() && !fault!("futures are looked at once");
        state.looks_at = looks.then_some(now + INTERVAL);
        let next = state.looks_at;
        drop(state);
        let late = |time| futures.iter().filter(move |future| future.is_late(now, time));
        let time = if late(UNPOLLED).count() > FEW { UNPOLLED_OF_MANY } else { UNPOLLED };
        let given_back = late(time).filter(|future| future.give_back(now, &releases)).take(FEW);
        // A poll may have returned because of this.
        given_back.for_each(|future| self.worker.foreign().wake(Waker::from(future.clone())));
        NextWork::At(next)
    }
}

/// A future that is watched.
pub(crate) struct Watched<'a, F> {
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
            // A waker is copied before the lock, and dropped after it: both can run code of an executor.
            let is_known = self.polled.future().has_waker(cx.waker());
            let locked = fault!("a future copies its waker with a lock held").then(|| self.polled.future());
            let waker = (!is_known).then(|| Arc::new(cx.waker().clone()));
            drop(locked);
            let _former;
            let mut future = self.polled.future();
            _former = waker.and_then(|waker| future.waker.replace(waker));
            if future.is_giving_back && !fault!("a future is polled before its releases are posted") {
                return Poll::Pending; // it is woken afterwards
            }
            (future.woken, future.is_polling) = (None, true);
        }
        let this = &mut *self;
        let polled = this.future.as_mut().poll(&mut Context::from_waker(&this.waker));
        this.polled.future().is_polling = fault!("a future counts as polled for ever");
        polled
    }
}

impl<F> Drop for Watched<'_, F> {
    fn drop(&mut self) {
        if !self.futures.worker.is_own_process() {
            return;
        }
        lock(&self.futures.state).futures.remove(&self.number);
        // Its mailbox keeps the waker of this future. Without this, each would keep the other alive. A waker may live longer.
        let _former = std::mem::take(&mut *self.polled.future()); // is dropped without the lock
    }
}
