//! Promise: a waiter is granted a permit as soon as possible, and learns of it in spite of outages. A wait
//! that ends without a permit leaves nothing behind.

mod cancelling;
mod crashes;
mod ending;
mod head_starts;
mod in_time;
mod outages;
mod still;

pub use crashes::work;

use crate::support::eventually;
use crate::support::raw::Raw;

use luagate::scripts::semaphore::Ask;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(600);
const LONG_MS: u64 = 600_000;

/// Blocks until this number of waiters is in line.
fn await_waiters(raw: &mut Raw, count: u64) {
    eventually("this number of waiters is in line", || (raw.inspect().waiter_count == count).then_some(()));
}

/// A permit of another client with a lease longer than the test. It is never renewed.
fn held(raw: &Raw) -> Ask<'static> {
    Ask { lease_ms: LONG_MS, ..raw.ask("holder") }
}
