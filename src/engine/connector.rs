//! Connects to one server, within a given time: at its address, or to the master that sentinels report.

#[cfg(test)]
mod tests;

use super::connection::{Connection, Receiver};
use super::credentials::Source;
use super::greeting::greet;
use super::mode::MayBlock;
use super::names::Names;
use super::sentinels::Sentinels;
use super::socket::{Socket, TimeLimit};
use super::stream::Stream;
use super::tls;
use crate::clock::{machine_now, since};
use crate::error::failure::{Failure, FailureKind};
use crate::foreign::Foreign;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisConnectionInfo, RedisError, RedisResult};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) enum Connector {
    Address(Box<Endpoint>),
    Sentinels(Arc<Sentinels>),
}

/// How a connection is made.
pub(super) struct ConnectOptions {
    pub(super) foreign: Foreign,
    /// For a connection that is subscribed.
    pub(super) receiver: Option<Arc<dyn Receiver>>,
    pub(super) read_timeout: Duration,
    /// On this machine's clock. Each look-up of a name moves it by the time that it takes.
    pub(super) until: Instant,
    pub(super) may: MayBlock,
}

impl Connector {
    /// The server for messages to people, without user and password: an address, or the name of the master.
    pub(super) fn address(&self) -> String {
        match self {
            Connector::Address(endpoint) => endpoint.address().to_string(),
            Connector::Sentinels(sentinels) => sentinels.master().to_owned(),
        }
    }

    /// Makes a connection. Also returns [`Connector::moves`] for it.
    pub(super) fn connect(&self, options: &mut ConnectOptions) -> Result<(Arc<Connection>, u64), Failure> {
        match self {
            Connector::Address(endpoint) => Ok((connect_to(endpoint, options)?, 0)),
            Connector::Sentinels(sentinels) => sentinels.connect(options),
        }
    }

    /// The function that returns the user and the password, if the program gave one.
    pub(super) fn credentials(&self) -> Option<&Source> {
        match self {
            Connector::Address(endpoint) => endpoint.credentials.as_ref(),
            Connector::Sentinels(sentinels) => sentinels.credentials(),
        }
    }

    /// How many times another server became the master. Earlier connections must not be used any more.
    pub(super) fn moves(&self) -> u64 {
        match self {
            Connector::Address(_) => 0,
            Connector::Sentinels(sentinels) => sentinels.moves(),
        }
    }

    /// How many names may have to be looked up for a connection.
    pub(super) fn look_ups(&self) -> u32 {
        match self {
            Connector::Address(_) => 1,
            Connector::Sentinels(sentinels) => sentinels.look_ups(),
        }
    }

    /// The server may have another address now: a connection to it has ended.
    pub(super) fn forget_address(&self) {
        match self {
            Connector::Address(endpoint) => endpoint.forget_names(),
            Connector::Sentinels(sentinels) => sentinels.forget_master(),
        }
    }

    /// The addresses at which connecting may have failed. Takes `within` at most if it must ask for them.
    pub(super) fn addresses(&self, within: Duration, may: MayBlock) -> Vec<ConnectionAddr> {
        match self {
            Connector::Address(endpoint) => vec![endpoint.address().clone()],
            Connector::Sentinels(sentinels) => sentinels.addresses(within, may),
        }
    }
}

/// Makes a connection to this address.
pub(super) fn connect_to(endpoint: &Endpoint, options: &mut ConnectOptions) -> Result<Arc<Connection>, Failure> {
    let mut limit = TimeLimit::new(options.until.saturating_duration_since(machine_now()));
    let connected = connect(endpoint, options.read_timeout, &mut limit);
    options.until = limit.end();
    let ConnectOptions { foreign, receiver, read_timeout, .. } = options;
    Ok(Arc::new(Connection::new(connected?, foreign, *read_timeout, receiver.clone())))
}

/// The address of one server, with everything that a connection to it needs.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The address, the user and the database. Its settings for TCP, RESP3 and TLS are not used.
    pub(super) info: ConnectionInfo,
    /// The settings of TLS, if the address uses it.
    pub(super) tls: Option<tls::Config>,
    /// The function that returns the password of each connection. `None`: it is in the address, if there is one.
    pub(super) credentials: Option<Source>,
    names: Names,
}

impl Endpoint {
    pub(super) fn new(info: ConnectionInfo) -> Endpoint {
        Endpoint { info, tls: None, credentials: None, names: Names::default() }
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    /// The same settings for another host.
    pub(crate) fn moved_to(&self, host: String, port: u16) -> Endpoint {
        let address = match self.address().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Endpoint { info: self.info.clone().set_addr(address), ..self.clone() }
    }

    /// All names that were looked up with these settings may have other addresses now.
    pub(super) fn forget_names(&self) {
        self.names.forget_all();
    }

    /// The user, the password and the database of a new connection. Calls the function of the program, if there is one.
    fn settings(&self, limit: TimeLimit, within: Duration) -> Result<RedisConnectionInfo, Failure> {
        let settings = self.info.redis_settings().clone();
        let Some(source) = &self.credentials else {
            return Ok(settings);
        };
        let asked = source.ask()?;
        if limit.left().is_err() {
            let text = format!("the function for credentials took longer than the {within:.0?} to connect");
            return Err(Failure::new(FailureKind::Authentication, text));
        }
        let settings = settings.set_password(asked.password);
        Ok(match asked.user {
            Some(user) => settings.set_username(user),
            None => settings,
        })
    }
}

/// Connects within the limit, logs in, and selects the database. Sends nothing else that needs a permission. The limit is
/// moved by the time to look up the name.
pub(crate) fn connect(
    endpoint: &Endpoint,
    write_timeout: Duration,
    limit: &mut TimeLimit,
) -> Result<Box<dyn Stream>, Failure> {
    let within = limit.within();
    let unconnected = |error| unconnected(error, within);
    let stream = open(endpoint, write_timeout, limit).map_err(unconnected)?;
    // Only now: a server that cannot be reached costs no call of the program's function.
    let settings = endpoint.settings(*limit, within)?;
    greet(&settings, tls::is_used(&endpoint.info), &*stream, *limit).map_err(unconnected)?;
    Ok(stream)
}

/// Connects, without the first commands.
fn open(endpoint: &Endpoint, write_timeout: Duration, limit: &mut TimeLimit) -> RedisResult<Box<dyn Stream>> {
    let names = &endpoint.names;
    match (endpoint.info.addr(), &endpoint.tls) {
        (ConnectionAddr::Tcp(host, port), _) => Ok(Box::new(open_tcp(names, host, *port, write_timeout, limit)?)),
        #[cfg(feature = "tls")]
        (ConnectionAddr::TcpTls { host, port, .. }, Some(config)) => {
            let tls = config.connection(host)?; // before anything is sent: the host may be no valid name
            let socket = open_tcp(names, host, *port, write_timeout, limit)?;
            Ok(Box::new(tls::TlsStream::connect(socket, tls, *limit)?))
        }
        #[cfg(unix)]
        (ConnectionAddr::Unix(path), _) => Ok(Box::new(Socket::unix(path, write_timeout, *limit)?)),
        _ => Err((ErrorKind::InvalidClientConfig, "this program cannot connect to an address of this kind").into()),
    }
}

fn open_tcp(
    names: &Names,
    host: &str,
    port: u16,
    write_timeout: Duration,
    limit: &mut TimeLimit,
) -> RedisResult<Socket> {
    // A node of a cluster may report it. It would mean this machine.
    if matches!(host, "0.0.0.0" | "::") {
        return Err((ErrorKind::InvalidClientConfig, "Cannot connect to a wildcard address (0.0.0.0 or ::)").into());
    }
    let begun = machine_now();
    let addresses = names.look_up(host, port);
    limit.move_by(since(begun));
    Ok(Socket::tcp(&addresses?, write_timeout, *limit).inspect_err(|_| names.forget(host, port))?)
}

/// The failure of a connection that could not be made within `within`.
pub(crate) fn unconnected(error: RedisError, within: Duration) -> Failure {
    if let Some(failure) = tls::failure_of(&error) {
        return failure;
    }
    let failure = Failure::of(error);
    match failure.kind() {
        // The connection was never established, so it did not break, even if the socket reports that.
        FailureKind::Disconnected => Failure::new(FailureKind::Unreachable, failure.text()),
        FailureKind::TimedOut => {
            let text = format!("no answer within {within:.0?}: {}", failure.text());
            Failure::new(FailureKind::Unreachable, text)
        }
        _ => failure,
    }
}
