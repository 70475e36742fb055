//! The address of one server, with everything that a connection to it needs.

use super::tls;
use redis::{ConnectionAddr, ConnectionInfo};

#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The address, the user and the database. Its settings for TCP, RESP3 and TLS are not used.
    pub(super) info: ConnectionInfo,
    /// The settings of TLS, if the address uses it.
    pub(super) tls: Option<tls::Config>,
}

impl Endpoint {
    /// `tls`: the settings for the addresses that use TLS.
    pub(super) fn new(info: ConnectionInfo, tls: Option<&tls::Config>) -> Endpoint {
        let tls = tls.filter(|_| tls::is_used(&info)).cloned();
        Endpoint { info, tls }
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    /// The same settings for another host.
    pub(crate) fn moved_to(&self, host: String, port: u16) -> Endpoint {
        let address = super::connect::moved_to(self.address(), host, port);
        Endpoint { info: self.info.clone().set_addr(address), tls: self.tls.clone() }
    }
}
