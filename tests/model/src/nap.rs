//! A task sleeps until a time. Afterwards, and when it has another waker, nobody uses its old waker.

use crate::engine::worker::Worker;
use crate::world::{fail, foreign, is_missed, now};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

pub(crate) struct Nap {
    until: Instant,
    begun: Option<Instant>,
    /// `None`: it is over, or was dropped.
    sleep: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    bell: Option<Arc<Bell>>,
}

/// Wakes the task.
struct Bell {
    task: Waker,
    /// Its timer was dropped before its time.
    is_removed: AtomicBool,
}

impl Nap {
    pub(crate) fn new(worker: Worker, until: Instant) -> Nap {
        let sleep = Box::pin(async move { worker.sleep(until).await });
        Nap { until, begun: None, sleep: Some(sleep), bell: None }
    }

    /// Polls it once, with a waker that wakes nobody.
    pub(crate) fn begin(mut self) -> Nap {
        let _ = Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop()));
        self
    }

    /// Its timer with this bell is dropped.
    fn remove(&self, bell: Option<Arc<Bell>>) {
        if let Some(bell) = bell
            && now() < self.until
        {
            bell.is_removed.store(true, Ordering::Relaxed);
        }
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<()> {
        if self.sleep.is_none() {
            return Poll::Ready(()); // it was over when it began
        }
        let begun = *self.begun.get_or_insert_with(now);
        let mut old = None;
        if !self.bell.as_ref().is_some_and(|bell| bell.task.will_wake(cx.waker())) {
            old = self.bell.replace(Arc::new(Bell { task: cx.waker().clone(), is_removed: AtomicBool::new(false) }));
        }
        let waker = Waker::from(self.bell.clone().unwrap());
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

impl Drop for Nap {
    fn drop(&mut self) {
        self.sleep = None;
        let bell = self.bell.take();
        self.remove(bell);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        foreign("wakes a task at its time");
        if self.is_removed.load(Ordering::Relaxed) {
            fail("a dropped timer woke its task".into());
        }
        self.task.wake_by_ref();
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        foreign("drops a waker");
    }
}
