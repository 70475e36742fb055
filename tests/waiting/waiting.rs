//! Promise: who waits in line is served as soon as it can be, hears of it however badly things go, and leaves nothing
//! behind when it gives up.

mod cancelling;
mod crashes;
mod ending;
mod in_time;
mod outages;

pub use crashes::work;

use crate::support::eventually;
use crate::support::raw::Raw;

use luagate::scripts::semaphore::Ask;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(600);
const LONG_MS: u64 = 600_000;

/// Waits until so many stand in line.
fn await_waiters(raw: &mut Raw, count: u64) {
    eventually("they stand in line", || (raw.inspect().waiter_count == count).then_some(()));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A permit of another client that nobody renews, for longer than a test takes.
fn held(raw: &Raw) -> Ask<'static> {
    Ask { lease_ms: LONG_MS, ..raw.ask("holder") }
}
