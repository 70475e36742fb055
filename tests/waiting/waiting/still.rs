//! Promise: a wait ends within its timeout and 50 ms, also while the server stands still.

use super::{await_waiters, held};
use crate::own;
use crate::support::raw::Raw;
use crate::support::{Server, assert_in_time};

use futures_executor::block_on;
use luagate::Gate;
use luagate::errors::AcquireError;
use std::time::{Duration, Instant};

/// For these timeouts a read of the connection ends at different times after the deadline, if it does.
const TIMEOUTS: [u64; 6] = [500, 503, 506, 509, 512, 515];

/// How late a wait of a thread or a task ends.
fn late(gate: &Gate, milliseconds: u64, is_task: bool) -> Duration {
    let (timeout, semaphore) = (Duration::from_millis(milliseconds), gate.semaphore("raw", 1));
    let begun = Instant::now();
    let outcome = if is_task {
        block_on(semaphore.acquire_timeout_async(timeout))
    } else {
        semaphore.acquire_timeout(timeout)
    };
    let took = begun.elapsed();
    // Unknown: the server stood still before its first reply had left it.
    assert!(matches!(outcome, Err(AcquireError::TimedOut(_) | AcquireError::Unknown(_))), "{outcome:?}");
    took.checked_sub(timeout).expect("it timed out too early")
}

#[test]
fn a_timeout_is_kept_within_50_ms_while_the_server_stands_still() {
    let mut server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    assert_in_time(Duration::from_millis(50), || {
        let (of_tasks, of_threads) = (server.gate(), TIMEOUTS.map(|_| server.gate())); // each thread reads its own connection
        let latest = std::thread::scope(|scope| {
            let tasks = TIMEOUTS.map(|timeout| (&of_tasks, timeout, true));
            let threads = of_threads.iter().zip(TIMEOUTS).map(|(gate, timeout)| (gate, timeout, false));
            let waits = tasks.into_iter().chain(threads);
            let waits =
                waits.map(|(gate, timeout, is_task)| scope.spawn(move || late(gate, timeout, is_task)));
            let waits: Vec<_> = waits.collect();
            await_waiters(&mut raw, waits.len() as u64);
            server.pause();
            waits.into_iter().map(|wait| wait.join().unwrap()).max()
        });
        server.resume();
        await_waiters(&mut raw, 0);
        latest.unwrap()
    });
}
