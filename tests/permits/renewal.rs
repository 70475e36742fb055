//! Promise: permits are renewed while they live, by one thread for all; loss is known before the server's deadline; and
//! nothing is renewed after its release.

mod lease;
mod loss;
mod stopped;
mod thread;

#[cfg(target_os = "linux")]
pub use thread::hold_a_thousand;

use crate::support::Server;
use crate::support::raw::Raw;

use luagate::Permit;
use luagate::errors::Lost;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Long beside the pauses of a busy machine: a renewal may be late by two thirds of it.
const LEASE: Duration = Duration::from_secs(2);

/// Waits until the server's clock shows `leases` leases more.
fn pass(raw: &mut Raw, leases: u32) {
    let until = raw.server_ms() + u64::try_from((LEASE * leases).as_millis()).unwrap();
    raw.wait_until(until);
}

/// A permit that says when it is lost.
fn watched(server: &Server) -> (Permit, Receiver<Lost>) {
    let (sender, receiver) = channel();
    let semaphore = server.gate().semaphore("raw", 1).lease(LEASE).auto_renew();
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    (semaphore.acquire().unwrap(), receiver)
}
