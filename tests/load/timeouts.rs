//! Promise: a wait ends in time, also if hundreds of threads of a process time out together. After that their
//! places in line are given up.

use crate::all_processors;
use crate::own;
use crate::support::raw::Raw;
use crate::support::{Server, within};

use luagate::errors::AcquireError;
use luagate::scripts::semaphore::Ask;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The number of waiting threads.
const WAITERS: usize = 600;

/// The timeout of each thread.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Waits in line with this number of threads, while another permit stays held. Returns how late each thread
/// returned.
fn time_out_together(server: &Server) -> Vec<Duration> {
    let semaphore = server.gate().semaphore("raw", 1);
    let start = Barrier::new(WAITERS);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITERS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let end = Instant::now() + TIMEOUT;
                    let outcome = semaphore.acquire_timeout(TIMEOUT);
                    let late = end.elapsed();
                    match outcome {
                        Err(AcquireError::TimedOut(_)) => late,
                        other => panic!("{other:?}"),
                    }
                })
            })
            .collect();
        waiting.into_iter().map(|w| w.join().unwrap()).collect()
    })
}

#[test]
fn hundreds_of_waits_that_time_out_together_leave_the_line() {
    let _processors = all_processors();
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 60_000, ..raw.ask("holder") });
    let mut late = time_out_together(&server);
    // On a busy machine the background gives up some places, a hundred in one packet.
    let left = raw.inspect().waiter_count;
    let gone = within(Duration::from_millis(500), || (raw.inspect().waiter_count == 0).then_some(()));
    late.sort();
    let (median, last) = (late[WAITERS / 2], late[WAITERS - 1]);
    println!("median {median:?}, last {last:?}, {left} were still in line");
    assert!(left <= WAITERS as u64 / 2, "{left} were still in line");
    assert!(gone.is_some(), "{} stay in line", raw.inspect().waiter_count);
}
