//! A worker: a separate process that enters and leaves the market until the bell rings.

use crate::record::{Event, What};
use crate::{LEASE, LIMIT, LONGEST_STAY, MARKET, Outcome, SHORTEST_STAY, open_gate};
use luagate::errors::AcquireError;
use luagate::{Cancel, Lease, Released, Semaphore};
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Longer than any run. A worker stops after this time, even if it missed the bell.
const LONGEST_DAY: Duration = Duration::from_secs(30);

pub fn run(name: &str, prefix: &str) -> Outcome {
    let bell = Cancel::new();
    ring_when_stdin_closes(bell.clone());
    let gate = open_gate(prefix, name)?;
    let market = gate.semaphore(MARKET, LIMIT).lease(Lease::fixed(LEASE)).cancelled_by(&bell);
    trade(name, &market, &bell)
}

/// Acquires, trades and releases, until the bell rings.
fn trade(name: &str, market: &Semaphore, bell: &Cancel) -> Outcome {
    while !bell.is_cancelled() {
        // In line: first come, first served.
        let permit = match market.acquire() {
            Ok(permit) => permit,
            Err(AcquireError::Cancelled(_)) => break,
            Err(error) => return Err(error.into()),
        };
        let (fence, ticket) = (permit.fence(), permit.ticket());
        write_down(name, What::Enter { fence, ticket })?;
        thread::sleep(length_of_stay()); // a real worker passes the fence to the data that it changes here
        write_down(name, What::Exit { fence })?;
        // When this returns, the first waiter has been granted.
        if permit.release()? == Released::Gone {
            return Err(
                "the permit was lost before its release; was the process paused for longer than its lease?"
                    .into(),
            );
        }
    }
    Ok(())
}

/// Appends to the record, which is stdout.
fn write_down(worker: &str, what: What) -> io::Result<()> {
    Event::now(worker, what).append_to(io::stdout())
}

fn length_of_stay() -> Duration {
    let spread = (LONGEST_STAY - SHORTEST_STAY).as_millis();
    let more = uuid::Uuid::new_v4().as_u128() % spread;
    SHORTEST_STAY + Duration::from_millis(more as u64)
}

/// Rings the bell when stdin is closed. The main process closes it at the end of the run, and the system
/// closes it when the main process ends. So no worker outlives the main process.
fn ring_when_stdin_closes(bell: Cancel) {
    let (open, closed) = mpsc::channel::<()>();
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(open);
    });
    thread::spawn(move || {
        let _ = closed.recv_timeout(LONGEST_DAY);
        bell.cancel();
    });
}
