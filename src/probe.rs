//! What speaks at a port: looked at once, where a gate could not be opened, since neither side tells that only one of them
//! speaks TLS. A server with TLS drops who does not; one without waits for the rest of what it takes for a long word.

use crate::error::CallError;
use crate::failure::{Failure, FailureKind};
use redis::{ConnectionAddr, ConnectionInfo};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The beginning of a handshake with nothing in it, to which every server with TLS answers with an alert.
const EMPTY_HELLO: [u8; 9] = [22, 3, 1, 0, 4, 1, 0, 0, 0];

/// How an alert begins.
const ALERT: [u8; 2] = [21, 3];

/// The error with which opening failed, or what is behind it. Takes no longer than `time`.
pub(crate) fn explain(info: &ConnectionInfo, error: CallError, time: Duration) -> CallError {
    use FailureKind::*;
    let (CallError::Failed(failure) | CallError::Unknown(failure)) = &error else {
        return error;
    };
    let reason = match (info.addr(), failure.kind()) {
        (ConnectionAddr::Tcp(host, port), Unreachable | Disconnected | NotRedis) => {
            let reply = ask(host, *port, &EMPTY_HELLO, time);
            (reply == Some(ALERT))
                .then_some("the server speaks TLS at this port; its address begins with rediss://")
        }
        (ConnectionAddr::TcpTls { host, port, .. }, Unreachable | Disconnected | TimedOut) => {
            let reply = ask(host, *port, b"PING\r\n", time);
            matches!(reply, Some([b'+' | b'-', _])).then_some(
                "the server speaks no TLS at this port; its address begins with redis://, or it has another port for TLS",
            )
        }
        _ => None,
    };
    match reason {
        Some(reason) => {
            let text = format!("{reason} ({})", failure.text());
            CallError::Failed(Failure::new(Tls, text))
        }
        None => error,
    }
}

/// How the answer to `words` begins.
fn ask(host: &str, port: u16, words: &[u8], time: Duration) -> Option<[u8; 2]> {
    let end = Instant::now() + time;
    let left =
        || Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
    let mut addresses = (host, port).to_socket_addrs().ok()?;
    let mut stream =
        addresses.find_map(|address| TcpStream::connect_timeout(&address, left()?).ok())?;
    stream.set_write_timeout(Some(left()?)).ok()?;
    stream.write_all(words).ok()?;
    stream.set_read_timeout(Some(left()?)).ok()?;
    let mut reply = [0; 2];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}
