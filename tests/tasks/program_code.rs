//! Promise: code of the program that the gate runs may panic, block, or use the gate: wakers, callbacks, and
//! the values that a callback captures. Leases are renewed meanwhile, and all other calls are answered.

use crate::own;
use crate::support::{SOON, Server, eventually};
use futures_executor::block_on;
use luagate::{Cancel, Gate, Lease, Permit};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A busy machine renews it late.
const LEASE: Duration = Duration::from_millis(1_500);

/// A waker that runs this function.
struct Runs<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Runs<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        (self.0)();
    }
}

fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Runs(wake)))
}

fn renewed(gate: &Gate) -> Permit {
    gate.semaphore("renewed", 1).lease(Lease::renewed(LEASE)).acquire().unwrap()
}

/// A gate whose calls may wait for long.
fn patient(server: &Server) -> Gate {
    Gate::builder(&server.url).prefix(&server.prefix).read_timeout(SOON).open().unwrap()
}

/// Threads and tasks get their permits, and the lease is renewed for another two times.
fn goes_on(gate: &Gate, permit: &Permit) {
    let before = gate.counters().renewed;
    eventually("the lease is renewed", || (gate.counters().renewed >= before + 2).then_some(()));
    assert!(!permit.is_lost());
    answers(gate);
}

fn answers(gate: &Gate) {
    drop(gate.semaphore("thread", 1).try_acquire().unwrap());
    let (sender, ended) = channel();
    let semaphore = gate.semaphore("task", 1);
    std::thread::spawn(move || {
        let held = block_on(semaphore.try_acquire_async()).unwrap();
        let late = block_on(semaphore.acquire_timeout_async(Duration::from_millis(50)));
        sender.send(late.is_err()).unwrap();
        drop(held);
    });
    assert_eq!(ended.recv_timeout(SOON), Ok(true), "a task that waits until its deadline");
}

/// Polls a future once, while the server does not answer.
fn begin(server: &mut Server, future: Pin<&mut impl Future>, waker: &Waker) {
    server.pause();
    assert!(future.poll(&mut Context::from_waker(waker)).is_pending());
    server.resume();
}

/// Waits until something was sent.
fn came(receiver: &Receiver<()>, what: &str) {
    receiver.recv_timeout(SOON).unwrap_or_else(|_| panic!("{what} does not happen"));
}

#[test]
fn a_waker_that_panics_when_a_reply_arrives_ends_nothing() {
    let mut server = own!(Server::private(&[]));
    let (gate, (sender, woken)) = (patient(&server), channel());
    let permit = renewed(&gate);
    let waker = waker(move || {
        sender.send(()).unwrap();
        panic!("a waker panics");
    });
    let semaphore = gate.semaphore("s", 1);
    let mut future = pin!(semaphore.try_acquire_async());
    begin(&mut server, future.as_mut(), &waker);
    came(&woken, "the wake-up");
    goes_on(&gate, &permit);
    drop(block_on(future).unwrap());
}

#[test]
fn a_waker_that_panics_at_a_deadline_ends_nothing() {
    let server = Server::any();
    let (gate, (sender, woken)) = (patient(&server), channel());
    let permit = renewed(&gate);
    let semaphore = gate.semaphore("s", 1);
    let _held = semaphore.acquire().unwrap();
    let begun = Instant::now();
    let timeout = Duration::from_millis(500);
    let mut future = pin!(semaphore.acquire_timeout_async(timeout));
    let is_armed = Arc::new(AtomicUsize::new(0));
    let waker = {
        let is_armed = is_armed.clone();
        waker(move || {
            if is_armed.load(Ordering::SeqCst) > 0 {
                sender.send(()).unwrap();
                panic!("a waker panics");
            }
        })
    };
    while begun.elapsed() < timeout * 3 / 5 {
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        std::thread::sleep(Duration::from_millis(10));
    }
    is_armed.store(1, Ordering::SeqCst);
    came(&woken, "the deadline");
    goes_on(&gate, &permit);
    assert!(block_on(future).is_err());
}

#[test]
fn while_a_waker_blocks_leases_are_renewed_and_threads_get_their_replies() {
    let mut server = own!(Server::private(&[]));
    let (gate, (sender, woken), (end, ends)) = (patient(&server), channel(), channel::<()>());
    let permit = renewed(&gate);
    let ends = Mutex::new(ends);
    let waker = waker(move || {
        sender.send(()).unwrap();
        let _ = ends.lock().unwrap().recv();
    });
    let semaphore = gate.semaphore("s", 1);
    let mut future = pin!(semaphore.try_acquire_async());
    begin(&mut server, future.as_mut(), &waker);
    came(&woken, "the wake-up");
    let before = gate.counters().renewed;
    eventually("the lease is renewed", || (gate.counters().renewed >= before + 2).then_some(()));
    assert!(!permit.is_lost());
    let (sender, answered) = channel();
    let other = gate.semaphore("thread", 1);
    std::thread::spawn(move || {
        let is_granted = other.try_acquire().is_ok(); // and dropped
        sender.send(is_granted).unwrap();
    });
    assert_eq!(answered.recv_timeout(SOON), Ok(true));
    drop(end);
    answers(&gate);
    drop(block_on(future).unwrap());
}

#[test]
fn a_waker_may_use_the_gate() {
    let mut server = own!(Server::private(&[]));
    let (gate, (sender, woken)) = (patient(&server), channel());
    let other = gate.clone();
    let waker = waker(move || sender.send(other.semaphore("other", 1).try_acquire().is_ok()).unwrap());
    let semaphore = gate.semaphore("s", 1);
    let mut future = pin!(semaphore.try_acquire_async());
    begin(&mut server, future.as_mut(), &waker);
    assert_eq!(woken.recv_timeout(SOON), Ok(true));
    answers(&gate);
    drop(block_on(future).unwrap());
}

/// A waker that cancels waits when it is dropped, as an executor that drops a task which owns them does.
struct Cancels(Cancel);

impl Wake for Cancels {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Cancels {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[test]
fn a_waker_that_cancels_its_own_wait_when_it_is_dropped_does_not_block_it() {
    let server = Server::any();
    let gate = patient(&server);
    let semaphore = gate.semaphore("s", 1);
    let _held = semaphore.acquire().unwrap();
    let cancel = Cancel::new();
    let waiting = semaphore.clone().cancelled_by(&cancel);
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let mut future = pin!(waiting.acquire_async());
        let first = Waker::from(Arc::new(Cancels(cancel)));
        let is_in_line = || semaphore.inspect().unwrap().waiter_count == 1;
        eventually("it is in line", || {
            assert!(future.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
            is_in_line().then_some(())
        });
        drop(first);
        sender.send(block_on(future).is_err()).unwrap();
    });
    assert_eq!(ended.recv_timeout(SOON), Ok(true), "the wait is cancelled");
    answers(&gate);
}

#[test]
fn a_wait_for_a_loss_may_drop_a_waker_that_uses_the_gate() {
    struct Asks(Gate, Sender<bool>, String);
    impl Wake for Asks {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Asks {
        fn drop(&mut self) {
            let revoked = self.0.semaphore("renewed", 1).revoke(&self.2).is_ok();
            self.1.send(revoked).unwrap();
        }
    }
    let server = Server::any();
    let (gate, (sender, dropped)) = (patient(&server), channel());
    let permit = renewed(&gate);
    let asks = Waker::from(Arc::new(Asks(gate.clone(), sender, permit.id().to_owned())));
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let mut lost = pin!(permit.lost_async());
        assert!(lost.as_mut().poll(&mut Context::from_waker(&asks)).is_pending());
        drop(asks);
        block_on(lost); // with another waker
        done.send(()).unwrap();
    });
    assert_eq!(dropped.recv_timeout(SOON), Ok(true));
    came(&ended, "the loss");
}

/// A value that a callback captures. It runs this function when it is dropped.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn while_what_a_callback_captures_is_dropped_leases_are_renewed_and_calls_are_answered() {
    let server = Server::any();
    let (gate, (sender, dropped), (end, ends)) = (patient(&server), channel(), channel::<()>());
    let permit = renewed(&gate);
    let ends = Mutex::new(ends);
    let captured = AtEnd(move || {
        sender.send(()).unwrap();
        let _ = ends.lock().unwrap().recv();
    });
    let job = gate.semaphore("job", 1).on_lost(move |_| {
        let _ = &captured;
    });
    let held = job.acquire().unwrap();
    drop((job, held));
    came(&dropped, "the drop");
    goes_on(&gate, &permit);
    drop(end);
}

#[test]
fn what_a_callback_captures_may_use_the_gate_when_it_is_dropped() {
    let server = Server::any();
    let (gate, (sender, released)) = (patient(&server), channel());
    let mut licence = Some(gate.semaphore("licence", 1).acquire().unwrap());
    let captured = Mutex::new(AtEnd(move || sender.send(licence.take().unwrap().release().is_ok()).unwrap()));
    let job = gate.semaphore("job", 1).on_lost(move |_| {
        let _ = &captured;
    });
    drop(job.acquire().unwrap());
    drop(job);
    assert_eq!(released.recv_timeout(SOON), Ok(true));
    answers(&gate);
}

#[test]
fn callbacks_that_panic_also_when_they_are_dropped_prevent_no_other_callback() {
    let server = Server::any();
    let gate = patient(&server);
    let permit = renewed(&gate);
    for _ in 0..2 {
        let captured = AtEnd(|| {
            if !std::thread::panicking() {
                panic!("a capture panics");
            }
        });
        let (sender, called) = channel();
        let lost =
            gate.semaphore("panics", 9).lease(Lease::fixed(Duration::from_millis(100))).on_lost(move |_| {
                let _ = &captured;
                sender.send(()).unwrap();
                panic!("a callback panics");
            });
        let held = lost.acquire().unwrap();
        came(&called, "the callback");
        drop((lost, held));
    }
    let (sender, called) = channel();
    let lost = gate.semaphore("panics", 9).lease(Lease::fixed(Duration::from_millis(100)));
    let held = lost.on_lost(move |_| sender.send(()).unwrap()).acquire().unwrap();
    came(&called, "the next callback");
    drop(held);
    goes_on(&gate, &permit);
}

#[test]
fn a_callback_may_wait_for_a_task() {
    let server = Server::any();
    let (gate, (sender, called)) = (patient(&server), channel());
    let other = gate.clone();
    let short = gate.semaphore("s", 1).lease(Lease::fixed(Duration::from_millis(100))).on_lost(move |_| {
        let late = block_on(async {
            let semaphore = other.semaphore("other", 1);
            let _held = semaphore.acquire_async().await;
            semaphore.acquire_timeout_async(Duration::from_millis(50)).await
        });
        sender.send(late.is_err()).unwrap();
    });
    let held = short.acquire().unwrap();
    assert_eq!(called.recv_timeout(SOON), Ok(true));
    drop(held);
}

/// A future that is dropped leaves no waker behind, which another thread would drop later.
#[test]
fn the_waker_of_a_future_that_is_dropped_is_dropped_with_it() {
    let mut server = own!(Server::private(&[]));
    let gate = patient(&server);
    let semaphore = gate.semaphore("s", 1);
    server.pause();
    let (kept, waker) = {
        let waker = Arc::new(Runs(|| {}));
        (Arc::downgrade(&waker), Waker::from(waker))
    };
    {
        let mut future = pin!(semaphore.inspect_async());
        assert!(matches!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
    }
    drop(waker);
    assert_eq!(kept.strong_count(), 0);
    server.resume();
    answers(&gate);
}
