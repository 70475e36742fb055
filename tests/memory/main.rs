//! Promise: with the feature `memory`, a program's unit tests need no server and control the clock.

mod clock;
mod kinds;
mod renewal;
mod server;
mod tasks;
mod waiting;

use luagate::memory::Memory;
use luagate::{Gate, Semaphore};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The maximum wait for a condition that should hold at once.
const SOON: Duration = Duration::from_secs(10);

#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn memory() -> (Gate, Memory) {
    Gate::in_memory().unwrap()
}

/// Starts a thread that waits in line, and returns when it is in line.
fn in_line<T: Send + 'static>(
    semaphore: &Semaphore,
    acquire: impl FnOnce(&Semaphore) -> T + Send + 'static,
) -> JoinHandle<T> {
    let before = semaphore.inspect().unwrap().waiters.len();
    let waiting = semaphore.clone();
    let thread = std::thread::spawn(move || acquire(&waiting));
    eventually("the thread is in line", || semaphore.inspect().unwrap().waiters.len() > before);
    thread
}

/// The result of a thread that must finish soon.
#[track_caller]
fn finished<T>(thread: JoinHandle<T>) -> T {
    eventually("the thread has finished", || thread.is_finished());
    thread.join().unwrap()
}
