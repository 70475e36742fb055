//! The settings of a gate.

use super::Gate;
use super::options::{Options, options};
use crate::clock::Clock;
use crate::error::{CallError, Invalid};
use crate::lease::permits::Permits;
use crate::lease::releases::Releases;
use crate::shared::Shared;
use crate::transport::address::Address;
use crate::transport::servers::Servers;
use crate::wait::blocking::Waits;
use crate::wait::inboxes::Inboxes;
#[cfg(feature = "r2d2")]
use redis::Client;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a [`Gate`]. [`Gate::builder`] creates it.
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct GateBuilder {
    options: Options,
    connections: usize,
    drop_bound: Duration,
}

options!(GateBuilder);

/// The maximum time that dropping a permit blocks, unless it never waits.
const DROP_BOUND: Duration = Duration::from_millis(100);

impl GateBuilder {
    pub(crate) fn new(address: Result<Address, Invalid>, clock: Clock) -> GateBuilder {
        GateBuilder { options: Options::new(address, clock), connections: 8, drop_bound: DROP_BOUND }
    }

    /// Settings for a gate that sends its calls over connections of `pool`. It borrows a connection for each call. The
    /// subscriber connection is separate, with the settings of `client`. [`connections`](GateBuilder::connections)
    /// limits the number of connections borrowed at the same time.
    ///
    /// The gate sets its timeouts on a borrowed connection and removes them again. `test_on_check_out(false)` saves a
    /// round trip for each call. If a connection is broken, the call that uses it notices this, and the client repeats
    /// the call.
    #[cfg(feature = "r2d2")]
    pub fn pool(pool: r2d2::Pool<Client>, client: &Client) -> GateBuilder {
        let info = client.get_connection_info().clone();
        let most = usize::try_from(pool.max_size()).unwrap_or(usize::MAX);
        GateBuilder::new(Ok(Address::Pool(pool, info)), Clock::real()).connections(most)
    }

    /// The maximum time to send a call: 1 ms to a day, 2 s by default.
    pub fn write_timeout(mut self, timeout: Duration) -> GateBuilder {
        self.options.timeouts.write = timeout;
        self
    }

    /// The maximum number of connections in the pool: 1 or more, 8 by default. Threads that wait in line need no
    /// connection. Calls of several threads share a packet, so the pool does not have to grow with the number of
    /// threads.
    pub fn connections(mut self, most: usize) -> GateBuilder {
        self.connections = most;
        self
    }

    /// Dropping a permit never waits for the server: a background thread sends the release. By default, dropping sends
    /// the release itself and waits for the reply, for at most 100 ms.
    ///
    /// For programs whose threads must not block, such as [async programs](crate::guide::async_programs). The first
    /// waiter gets the permit a little later, usually by less than a round trip. If the process ends directly after the
    /// drop, the release may not be sent; then the permit ends with its lease. The setting applies to guards of all
    /// locks. [`Permit::release`](crate::Permit::release) still waits for the reply.
    pub fn drop_in_background(mut self) -> GateBuilder {
        self.drop_bound = Duration::ZERO;
        self
    }

    /// Opens the gate and connects once. Blocks meanwhile.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if a setting is not valid. [`CallError::Failed`] if the server cannot be used.
    pub fn open(self) -> Result<Gate, CallError> {
        if self.connections == 0 {
            return Err(Invalid::new("connections", "got 0. Accepted: 1 or more").into());
        }
        let address = self.options.checked()?;
        let Options { clock, timeouts, replicas, prefix, label, outage, .. } = self.options;
        let servers = Servers::open(address, clock, timeouts, self.connections)?;
        let servers = Arc::new(servers);
        servers.check()?;
        let releases = Arc::new(Releases::new(servers.clone()));
        let shared = Shared {
            permits: Permits::new(servers.clone(), replicas),
            waits: Waits {
                servers: servers.clone(),
                inboxes: Inboxes::new(servers.clone(), releases.clone(), &prefix),
                releases: releases.clone(),
                outage,
            },
            releases,
            servers,
            prefix,
            label,
            has_replicas: replicas.is_some(),
            drop_bound: self.drop_bound,
        };
        Ok(Gate { shared: Arc::new(shared) })
    }
}
