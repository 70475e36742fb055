//! The settings of a gate.

use super::gate::Gate;
use super::lease::permits::Permits;
use super::lease::releases::Releases;
use super::shared::{Core, Shared};
use super::transport::ServerOptions;
use super::transport::servers::Servers;
use super::wait::inboxes::Inboxes;
use super::wait::registry::Registry;
use crate::clock::Clock;
use crate::counters::Counts;
use crate::error::{CallError, Invalid};
use crate::gate::{Options, options};
use crate::transport::address::Address;
use std::sync::Arc;

/// Settings of a [`Gate`]. [`Gate::builder`] creates it.
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct GateBuilder {
    options: Options,
}

options!(GateBuilder);

impl GateBuilder {
    pub(crate) fn new(address: Result<Address, Invalid>, clock: Clock) -> GateBuilder {
        GateBuilder { options: Options::new(address, clock) }
    }

    /// Opens the gate and connects once.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if a setting is not valid. [`CallError::Failed`] if the server cannot be used.
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays open.
    pub async fn open(self) -> Result<Gate, CallError> {
        let address = self.options.checked()?.for_tasks()?;
        let Options { clock, timeouts, replicas, prefix, label, outage, .. } = self.options;
        let releases = Arc::new(Releases::new(&clock));
        let registry = Arc::new(Registry::new(&clock, &releases));
        let counts = Arc::new(Counts::default());
        let options = ServerOptions { clock, counts, timeouts, listener: registry.clone() };
        let servers = Arc::new(Servers::open(address, options)?);
        servers.check().await?;
        let permits = Permits::new(servers.clone(), replicas);
        let inboxes = Inboxes::new(registry, &prefix);
        let core = Core::new(servers, permits, releases, inboxes, outage);
        Ok(Gate { shared: Arc::new(Shared::new(core, prefix, label)) })
    }
}
