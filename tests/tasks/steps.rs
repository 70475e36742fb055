//! Polls a future step by step, so that a test can drop it at each of its await points.

use crate::support::SOON;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;

/// A future that a test polls itself.
pub struct Steps<'a, T> {
    runtime: &'a Runtime,
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        *self.is_woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl<'a, T> Steps<'a, T> {
    pub fn new(runtime: &'a Runtime, future: impl Future<Output = T> + Send + 'a) -> Steps<'a, T> {
        Steps { runtime, future: Box::pin(future), woken: Arc::default() }
    }

    /// Polls the future once.
    pub fn poll(&mut self) -> Poll<T> {
        *self.woken.is_woken.lock().unwrap() = false;
        let _guard = self.runtime.enter();
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Whether the future is woken within this time.
    pub fn is_woken_within(&self, time: Duration) -> bool {
        let is_woken = self.woken.is_woken.lock().unwrap();
        let waited = self.woken.changed.wait_timeout_while(is_woken, time, |is_woken| !*is_woken);
        *waited.unwrap().0
    }

    /// Polls the future whenever it is woken, until it is done.
    pub fn finish(&mut self) -> T {
        loop {
            if let Poll::Ready(done) = self.poll() {
                return done;
            }
            assert!(self.is_woken_within(SOON), "it is not woken");
        }
    }
}
