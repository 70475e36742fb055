//! Stops futures that are not polled. Such a future may be one of several in a `select`, while its task works
//! on another one ("futurelock"). Its grant would block all other callers. A future that is stopped is
//! dropped, which gives back its grant, also one that may still come. When it is polled again, it begins
//! anew.

use crate::clock::Clock;
use crate::engine::worker::{Job, NextWork, Worker};
use crate::lease::releases::Releases;
use crate::sync::{Arc, Mutex, fault, lock, try_lock};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A future is stopped if it is not polled for this long after it was woken.
pub(crate) const UNPOLLED: Duration = Duration::from_secs(1);

/// The interval at which the futures are checked.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);

/// If more futures than this are late, the machine is busy, and most of them will be polled soon: they get
/// more time. No more are stopped at a time.
pub(crate) const FEW: usize = 100;
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
    futures: BTreeMap<u64, Arc<dyn Stop>>,
    last: u64,
    /// When the gate's own thread looks at them next.
    looks_at: Option<Instant>,
}

/// A future that can be stopped.
trait Stop: Send + Sync {
    /// Whether it was woken, and not polled for this time.
    fn is_late(&self, now: Instant, time: Duration) -> bool;

    /// Drops it, unless it is polled now. Returns whether it was dropped.
    fn stop(&self) -> bool;
}

/// The ticket of the place in line that a future had when it was stopped. 0: none.
#[derive(Clone, Default)]
pub(crate) struct KeptTicket(Arc<AtomicU64>);

impl KeptTicket {
    pub(crate) fn keep(&self, ticket: u64) {
        self.0.store(ticket, Ordering::Relaxed);
    }

    pub(crate) fn ticket(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ticket| *ticket > 0)
    }
}

struct Polled<F> {
    clock: Clock,
    wakes: Mutex<Wakes>,
    /// Locked while it is polled or dropped. `None`: it has not begun, or it was stopped.
    future: Mutex<Option<Pin<Box<F>>>>,
}

#[derive(Default)]
struct Wakes {
    waker: Option<Arc<Waker>>,
    /// When it was woken, unless it was polled since.
    woken: Option<Instant>,
}

impl Wakes {
    fn has_waker(&self, waker: &Waker) -> bool {
        self.waker.as_ref().is_some_and(|known| known.will_wake(waker))
    }
}

impl<F: Send> Wake for Polled<F> {
    fn wake(self: Arc<Polled<F>>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Polled<F>>) {
        let mut wakes = lock(&self.wakes);
        if !fault!("a future is not late although it was woken") {
            wakes.woken.get_or_insert_with(|| self.clock.now());
        }
        let waker = wakes.waker.clone();
        drop(wakes);
        if let Some(waker) = waker {
            waker.wake_by_ref();
        }
    }
}

impl<F: Send> Stop for Polled<F> {
    fn is_late(&self, now: Instant, time: Duration) -> bool {
        lock(&self.wakes).woken.is_some_and(|woken| now.saturating_duration_since(woken) >= time)
    }

    fn stop(&self) -> bool {
        let Some(mut future) = try_lock(&self.future) else {
            return false;
        };
        let is_woken = lock(&self.wakes).woken.take().is_some();
        if is_woken || fault!("a future that was polled is stopped") {
            *future = None; // with the lock: it does not begin anew before its releases are posted
        }
        is_woken
    }
}

impl Futures {
    pub(crate) fn new(clock: &Clock, worker: &Worker, releases: &Arc<Releases>) -> Arc<Futures> {
        let (clock, releases) = (clock.clone(), Arc::downgrade(releases));
        let futures = Arc::new(Futures { clock, worker: worker.clone(), releases, state: Mutex::default() });
        worker.add_job(Arc::<Futures>::downgrade(&futures));
        futures
    }

    /// Watches the futures that `make` returns: the first one, and another one after each that was stopped.
    pub(crate) fn watch<F: Future + Send + 'static, M: Fn() -> F + Unpin>(
        &self,
        make: M,
    ) -> Restartable<'_, F, M> {
        let polled = Polled { clock: self.clock.clone(), wakes: Mutex::default(), future: Mutex::default() };
        let polled = Arc::new(polled);
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
        Restartable { futures: self, number, waker: Waker::from(polled.clone()), polled, make }
    }
}

impl Job for Futures {
    fn work(self: Arc<Futures>) -> NextWork {
        if Releases::of_open_gate(&self.releases).is_none() {
            return NextWork::Never;
        }
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
        late(time).filter(|future| future.stop()).take(FEW).for_each(drop);
        NextWork::At(next)
    }
}

/// A future that is watched.
pub(crate) struct Restartable<'a, F: Send, M> {
    futures: &'a Futures,
    number: u64,
    polled: Arc<Polled<F>>,
    waker: Waker,
    make: M,
}

impl<F: Future + Send, M: Fn() -> F + Unpin> Future for Restartable<'_, F, M> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context) -> Poll<F::Output> {
        // A waker is copied before the lock, and dropped after it: both can run code of an executor.
        let is_known = lock(&self.polled.wakes).has_waker(cx.waker());
        let locked = fault!("a future copies its waker with a lock held").then(|| lock(&self.polled.wakes));
        let waker = (!is_known).then(|| Arc::new(cx.waker().clone()));
        drop(locked);
        let _former;
        let mut current = lock(&self.polled.future);
        {
            let mut wakes = lock(&self.polled.wakes);
            _former = waker.and_then(|waker| wakes.waker.replace(waker));
            wakes.woken = None; // it is not stopped from here on
        }
        let future = current.get_or_insert_with(|| Box::pin((self.make)()));
        future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

impl<F: Send, M> Drop for Restartable<'_, F, M> {
    fn drop(&mut self) {
        if !self.futures.worker.is_own_process() {
            return;
        }
        let ended = lock(&self.futures.state).futures.remove(&self.number);
        // The slots of its waits keep the waker of this future. Without this, each would keep the other
        // alive.
        let future = lock(&self.polled.future).take();
        let waker = lock(&self.polled.wakes).waker.take();
        drop((ended, future, waker)); // without the locks
    }
}
