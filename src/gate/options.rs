//! The settings of a gate, and their checks.

use crate::clock::Clock;
use crate::engine::address::Address;
use crate::engine::server::Timeouts;
use crate::engine::tls::Certificates;
use crate::error::{CallError, Invalid};
use crate::protocol::exchange::MinReplicas;
use crate::protocol::{id, keys};
use std::time::Duration;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) clock: Clock,
    pub(crate) address: Result<Address, Invalid>,
    pub(crate) certificates: Certificates,
    pub(crate) prefix: String,
    pub(crate) label: Option<String>,
    pub(crate) timeouts: Timeouts,
    pub(crate) outage: Duration,
    pub(crate) replicas: Option<MinReplicas>,
}

impl Options {
    pub(crate) fn new(address: Result<Address, Invalid>, clock: Clock) -> Options {
        Options {
            clock,
            address,
            certificates: Certificates::default(),
            prefix: "luagate".to_owned(),
            label: None,
            timeouts: Timeouts { connect: Duration::from_secs(2), read: Duration::from_secs(2) },
            outage: Duration::from_secs(10),
            replicas: None,
        }
    }

    /// Checks all settings. Returns the address with the settings for TLS.
    pub(crate) fn checked(&self) -> Result<Address, CallError> {
        let address = self.address.clone()?;
        keys::check_prefix(&self.prefix)?;
        if let Some(label) = &self.label {
            id::new_id(Some(label))?;
        }
        let Timeouts { connect, read } = self.timeouts;
        for (what, timeout) in [("connect_timeout", connect), ("read_timeout", read)] {
            if !(Duration::from_millis(1)..=LONGEST_TIMEOUT).contains(&timeout) {
                let why = format!("{timeout:?} is out of range. Accepted: 1 ms to 24 hours");
                return Err(Invalid::new(what, why).into());
            }
        }
        if let Some(MinReplicas { count, timeout }) = self.replicas
            && (count == 0 || timeout.is_zero() || timeout >= read)
        {
            let why = format!(
                "got {count} replicas and {timeout:?}. Accepted: 1 replica or more, and a timeout above 0 and below the read timeout of {read:?}"
            );
            return Err(Invalid::new("min_replicas", why).into());
        }
        address.with_certificates(&self.certificates)
    }
}
