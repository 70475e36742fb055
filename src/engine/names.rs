//! The addresses of host names. The system does not limit the time of a look-up: a name server that does not
//! answer costs 5 s or more. So a look-up has its own limit, apart from that for connecting, and its own
//! thread. Its result is kept for a while, also if nobody waits for it any more.

use crate::clock::{machine_now, since};
use crate::sync::{lock, spawn};
use luagate_core::routing::HostPort;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest time that an attempt to connect waits for a look-up.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(10);

/// How long the result of a look-up can be used.
pub(crate) const KEPT: Duration = Duration::from_secs(10);

/// The names of one gate. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct NameCache {
    kept: Arc<Mutex<HashMap<HostPort, Addresses>>>,
}

#[derive(Debug)]
struct Addresses {
    addresses: Vec<SocketAddr>,
    since: Instant,
}

impl NameCache {
    /// The addresses of this host. Looks them up, unless they are kept. Blocks for [`LOOK_UP`] at most.
    pub(super) fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, port).into()]);
        }
        let name: HostPort = (host.to_owned(), port);
        if let Some(addresses) = self.kept(&name) {
            return Ok(addresses);
        }
        let (sender, found) = sync_channel(1);
        let (names, named) = (self.clone(), name.clone());
        let looks_up = move || {
            let found = (named.0.as_str(), named.1).to_socket_addrs().map(Vec::from_iter);
            if let Ok(addresses) = &found {
                names.keep(named, addresses.clone());
            }
            let _ = sender.send(found); // nobody may wait any more
        };
        if !spawn("luagate-names", looks_up) {
            return Err(io::Error::other("no thread could be started"));
        }
        found.recv_timeout(LOOK_UP).unwrap_or_else(|_| {
            // An earlier look-up may have ended meanwhile.
            self.kept(&name)
                .ok_or_else(|| io::Error::other(format!("no address of the host within {LOOK_UP:?}")))
        })
    }

    fn kept(&self, name: &HostPort) -> Option<Vec<SocketAddr>> {
        let mut kept = lock(&self.kept);
        kept.retain(|_, found| since(found.since) < KEPT);
        kept.get(name).map(|found| found.addresses.clone())
    }

    fn keep(&self, name: HostPort, addresses: Vec<SocketAddr>) {
        lock(&self.kept).insert(name, Addresses { addresses, since: machine_now() });
    }

    /// No server could be reached at these addresses.
    pub(super) fn forget(&self, host: &str, port: u16) {
        lock(&self.kept).remove(&(host.to_owned(), port));
    }

    /// The names may have other addresses now.
    pub(super) fn forget_all(&self) {
        lock(&self.kept).clear();
    }
}
