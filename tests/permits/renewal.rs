//! Promise: one thread renews all permits while they are held. A loss is known before the server's deadline.
//! Nothing is renewed after its release.

mod lease;
mod loss;
mod stopped;
mod thread;

#[cfg(target_os = "linux")]
pub use thread::hold_a_thousand;

use crate::support::Server;
use crate::support::raw::Raw;

use luagate::errors::Lost;
use luagate::{Lease, Permit};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Much longer than a pause of a busy machine: a renewal may be late by two thirds of it.
const LEASE: Duration = Duration::from_secs(2);

/// Blocks until the server's clock has advanced by `leases` leases.
fn pass(raw: &mut Raw, leases: u32) {
    let until = raw.server_ms() + u64::try_from((LEASE * leases).as_millis()).unwrap();
    raw.wait_until(until);
}

/// A permit that reports its loss to the receiver.
fn watched(server: &Server) -> (Permit, Receiver<Lost>) {
    let (sender, receiver) = channel();
    let semaphore = server.gate().semaphore("raw", 1).lease(Lease::renewed(LEASE));
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    (semaphore.acquire().unwrap(), receiver)
}
