//! The address of one server, and how to connect there within a given time.

#[cfg(test)]
mod tests;

use super::connection::{Connection, Receiver};
use super::credentials::Source;
use super::greeting::greet;
use super::mode::{MayBlock, block_with};
use super::names::NameCache;
use super::socket::{Socket, TimeLimit};
use super::stream::Stream;
use super::tls;
use crate::clock::{machine_now, since};
use crate::error::received::received;
use crate::error::words;
use crate::foreign::Foreign;
use luagate_core::failure::{CallError, Failure};
use luagate_core::kind::FailureKind;
use luagate_core::reply::unexpected;
use luagate_core::resp;
use luagate_core::value::Value;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisConnectionInfo, RedisError, RedisResult};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Makes a connection to this address.
pub(super) fn connect_to(
    endpoint: &Endpoint,
    options: &mut ConnectOptions,
) -> Result<Arc<Connection>, Failure> {
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
    /// The function that returns the password of each connection. `None`: it is in the address, if there is
    /// one.
    pub(super) credentials: Option<Source>,
    names: NameCache,
}

impl Endpoint {
    pub(super) fn new(info: ConnectionInfo) -> Endpoint {
        Endpoint { info, tls: None, credentials: None, names: NameCache::default() }
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

    /// The user, the password and the database of a new connection. Calls the function of the program, if
    /// there is one.
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

/// Connects within the limit, logs in, and selects the database. Sends nothing else that needs a permission.
/// The limit is moved by the time to look up the name.
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
        (ConnectionAddr::Tcp(host, port), _) => {
            Ok(Box::new(open_tcp(names, host, *port, write_timeout, limit)?))
        }
        #[cfg(feature = "tls")]
        (ConnectionAddr::TcpTls { host, port, .. }, Some(config)) => {
            let tls = config.connection(host)?; // before anything is sent: the host may be no valid name
            let socket = open_tcp(names, host, *port, write_timeout, limit)?;
            Ok(Box::new(tls::TlsStream::connect(socket, tls, *limit)?))
        }
        #[cfg(unix)]
        (ConnectionAddr::Unix(path), _) => Ok(Box::new(Socket::unix(path, write_timeout, *limit)?)),
        _ => {
            Err((ErrorKind::InvalidClientConfig, "this program cannot connect to an address of this kind")
                .into())
        }
    }
}

fn open_tcp(
    names: &NameCache,
    host: &str,
    port: u16,
    write_timeout: Duration,
    limit: &mut TimeLimit,
) -> RedisResult<Socket> {
    // A node of a cluster may report it. It would mean this machine.
    if matches!(host, "0.0.0.0" | "::") {
        return Err(
            (ErrorKind::InvalidClientConfig, "Cannot connect to a wildcard address (0.0.0.0 or ::)").into()
        );
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
    let failure = received(error);
    match failure.kind() {
        // The connection was never established, so it did not break, even if the socket reports that.
        FailureKind::Disconnected => failure.of_kind(FailureKind::Unreachable),
        FailureKind::TimedOut => {
            let text = format!("no answer within {within:.0?}: {}", words::of(&failure));
            Failure::new(FailureKind::Unreachable, text)
        }
        _ => failure,
    }
}

/// Sends a command on this connection, and blocks until `until`. An error of the server is a value.
pub(super) fn command(
    connection: &Arc<Connection>,
    command: &[&[u8]],
    until: Instant,
    may: MayBlock,
) -> Result<Value, Failure> {
    let replies = block_with(may, |mode| connection.exchange(resp::command(command), 1, until, mode));
    replies.and_then(first).map_err(CallError::into_failure)
}

pub(super) fn first(replies: Vec<Value>) -> Result<Value, CallError> {
    replies.into_iter().next().ok_or_else(|| unexpected(&"no reply"))
}
