//! Detects that only one side uses TLS. Runs once, if a gate could not be opened, since neither side reports
//! this error. A server with TLS closes connections without it. A server without TLS reads the handshake as a
//! long word and waits for the rest of it.

use crate::clock::machine_now;
use crate::engine::mode::Mode;
use crate::engine::servers::Servers;
use crate::engine::slot::run_in_thread;
use crate::error::words;
use luagate_core::failure::{CallError, Failure};
use luagate_core::kind::FailureKind;
use redis::ConnectionAddr;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// The beginning of a handshake without content. Every server with TLS answers it with an alert.
const EMPTY_HELLO: [u8; 9] = [22, 3, 1, 0, 4, 1, 0, 0, 0];

/// The first bytes of an alert.
const ALERT: [u8; 2] = [21, 3];

/// The error of a gate that could not be opened, with the cause if only one side uses TLS. Waits for a
/// quarter of the connect timeout at most.
pub(super) async fn explained(servers: &Arc<Servers>, error: CallError, mode: Mode) -> CallError {
    use FailureKind::*;
    let may_be =
        |failure: &&Failure| matches!(failure.kind(), Unreachable | Disconnected | NotRedis | TimedOut);
    let Some(failure) = error.failure().filter(may_be).cloned() else {
        return error;
    };
    let time = servers.timeouts.connect / 4;
    let until = machine_now() + time;
    let asked = servers.clone();
    let look = move |may| cause(&asked.addresses(time, may), time, &failure);
    let cause = run_in_thread(&servers.foreign, "luagate-tls", until, mode, look);
    let until = servers.clock.at_machine_time(until);
    let cause = servers.worker.limited(until, mode, cause).await.flatten().flatten();
    cause.map_or(error, CallError::Failed)
}

/// The cause, if only one side uses TLS at one of these addresses.
fn cause(addresses: &[ConnectionAddr], time: Duration, failure: &Failure) -> Option<Failure> {
    let share = time / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let reason = addresses.iter().find_map(|address| mismatch(address, failure.kind(), share))?;
    Some(Failure::new(FailureKind::Tls, format!("{reason} ({})", words::of(failure))))
}

/// The mismatch, if only one side uses TLS and a connection failed with this kind of error for that reason.
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

/// Sends `words` and returns the first bytes of the answer.
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
