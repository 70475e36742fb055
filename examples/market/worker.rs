//! A worker: a process of its own that goes in and out of the market until the bell.

use crate::record::{Event, What};
use crate::{LEASE, LIMIT, LONGEST_STAY, MARKET, Outcome, SHORTEST_STAY, open_gate};
use luagate::errors::AcquireError;
use luagate::{Cancel, Released, Semaphore};
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Longer than any day: nobody trades on after that, whatever became of the bell.
const LONGEST_DAY: Duration = Duration::from_secs(30);

pub fn run(name: &str, prefix: &str) -> Outcome {
    let bell = Cancel::new();
    ring_when_stdin_closes(bell.clone());
    let gate = open_gate(prefix, name)?;
    let market = gate.semaphore(MARKET, LIMIT).lease(LEASE).cancelled_by(&bell);
    trade(name, &market, &bell)
}

/// In, trade, out, until the bell.
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
        thread::sleep(length_of_stay()); // a real one hands the fence to whatever it changes here
        write_down(name, What::Exit { fence })?;
        // Whoever is first in line has it when this returns.
        if permit.release()? == Released::Gone {
            return Err("its permit was gone before it left; was the process paused?".into());
        }
    }
    Ok(())
}

/// Stdout is the record.
fn write_down(worker: &str, what: What) -> io::Result<()> {
    Event::now(worker, what).append_to(io::stdout())
}

fn length_of_stay() -> Duration {
    let spread = (LONGEST_STAY - SHORTEST_STAY).as_millis();
    let more = uuid::Uuid::new_v4().as_u128() % spread;
    SHORTEST_STAY + Duration::from_millis(more as u64)
}

/// The market closes stdin at the end of the day, or by its own death: so no worker outlives it.
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
