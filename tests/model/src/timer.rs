//! A task sleeps until a time. Afterwards, and when it has another waker, nobody uses its old waker.

use crate::engine::mode::Mode;
use crate::engine::worker::Worker;
use crate::waker::watched;
use crate::world::{fail, foreign, is_missed, now};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

pub(crate) struct Timer {
    until: Instant,
    begun: Option<Instant>,
    /// `None`: it is over, or was dropped.
    sleep: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    waker: Option<Arc<TimerWaker>>,
    watched: Option<Waker>,
}

/// Wakes the task.
struct TimerWaker {
    task: Waker,
    /// Its timer was dropped before its time.
    is_removed: AtomicBool,
}

impl Timer {
    pub(crate) fn new(worker: Worker, until: Instant, mode: Mode) -> Timer {
        let sleep = Box::pin(async move { worker.sleep(until, mode).await });
        Timer { until, begun: None, sleep: Some(sleep), waker: None, watched: None }
    }

    /// Polls it once, with a waker that wakes nobody.
    pub(crate) fn begin(mut self) -> Timer {
        let _ = Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop()));
        self
    }

    /// The timer that had this waker is dropped.
    fn remove(&self, waker: Option<Arc<TimerWaker>>) {
        if let Some(waker) = waker
            && now() < self.until
        {
            waker.is_removed.store(true, Ordering::Relaxed);
        }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<()> {
        if self.sleep.is_none() {
            return Poll::Ready(()); // it was over when it began
        }
        let begun = *self.begun.get_or_insert_with(now);
        let mut old = None;
        if !self.waker.as_ref().is_some_and(|waker| waker.task.will_wake(cx.waker())) {
            old = self.waker.replace(Arc::new(TimerWaker {
                task: cx.waker().clone(),
                is_removed: AtomicBool::new(false),
            }));
        }
        if old.is_some() || self.watched.is_none() {
            self.watched = self.waker.clone().map(|waker| watched(waker.into()));
        }
        let waker = self.watched.clone().unwrap();
        let sleep = self.sleep.as_mut().unwrap();
        if sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.remove(old);
            return Poll::Pending;
        }
        self.sleep = None;
        if now() < self.until {
            fail("a task was woken too early".into());
        }
        if is_missed(self.until.max(begun)) {
            fail("a task was woken too late".into());
        }
        Poll::Ready(())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.sleep = None;
        let waker = self.waker.take();
        self.remove(waker);
    }
}

impl Wake for TimerWaker {
    fn wake(self: Arc<TimerWaker>) {
        foreign("wakes a task at its time");
        if self.is_removed.load(Ordering::Relaxed) {
            fail("a dropped timer woke its task".into());
        }
        self.task.wake_by_ref();
    }
}

impl Drop for TimerWaker {
    fn drop(&mut self) {
        foreign("drops a waker");
    }
}
