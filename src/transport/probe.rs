//! What speaks at a port: looked at once, where a gate could not be opened, since neither side tells that only one of them
//! speaks TLS. A server with TLS drops who does not; one without waits for the rest of what it takes for a long word.

use super::pool::Pool;
use crate::clock::machine_now;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use redis::ConnectionAddr;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// The beginning of a handshake with nothing in it, to which every server with TLS answers with an alert.
const EMPTY_HELLO: [u8; 9] = [22, 3, 1, 0, 4, 1, 0, 0, 0];

/// How an alert begins.
const ALERT: [u8; 2] = [21, 3];

/// The error with which opening a gate on these servers failed, or what is behind it. Takes a part of the time for connecting.
pub(crate) fn explain(servers: &[Arc<Pool>], error: CallError) -> CallError {
    use FailureKind::*;
    let (CallError::Failed(failure) | CallError::Unknown(failure)) = &error else {
        return error;
    };
    let kind = failure.kind();
    if !matches!(kind, Unreachable | Disconnected | NotRedis | TimedOut) {
        return error;
    }
    let time = servers.iter().map(|server| server.options.timeouts.connect).max();
    let time = time.unwrap_or_default() / 4;
    let addresses = servers.iter().flat_map(|server| server.addresses(time));
    let addresses: Vec<ConnectionAddr> = addresses.collect();
    let share = time / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut addresses = addresses.iter();
    match addresses.find_map(|address| mismatch(address, kind, share)) {
        Some(reason) => {
            let text = format!("{reason} ({})", failure.text());
            CallError::Failed(Failure::new(Tls, text))
        }
        None => error,
    }
}

/// What is wrong where only one side speaks TLS, and that made a connection fail in this way.
fn mismatch(address: &ConnectionAddr, kind: FailureKind, time: Duration) -> Option<&'static str> {
    use FailureKind::*;
    match (address, kind) {
        (ConnectionAddr::Tcp(host, port), Unreachable | Disconnected | NotRedis) => {
            let reply = ask(host, *port, &EMPTY_HELLO, time);
            (reply == Some(ALERT))
                .then_some("the server uses TLS at this port. Write rediss instead of redis in its address")
        }
        (ConnectionAddr::TcpTls { host, port, .. }, Unreachable | Disconnected | TimedOut) => {
            let reply = ask(host, *port, b"PING\r\n", time);
            matches!(reply, Some([b'+' | b'-', _])).then_some(
                "the server does not use TLS at this port. Write redis instead of rediss in its address, or use its TLS port",
            )
        }
        _ => None,
    }
}

/// How the answer to `words` begins.
fn ask(host: &str, port: u16, words: &[u8], time: Duration) -> Option<[u8; 2]> {
    let end = machine_now() + time;
    let left = || Some(end.saturating_duration_since(machine_now())).filter(|left| !left.is_zero());
    let mut addresses = (host, port).to_socket_addrs().ok()?;
    let mut stream = addresses.find_map(|address| TcpStream::connect_timeout(&address, left()?).ok())?;
    stream.set_write_timeout(Some(left()?)).ok()?;
    stream.write_all(words).ok()?;
    stream.set_read_timeout(Some(left()?)).ok()?;
    let mut reply = [0; 2];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}
