//! Servers of a few lines that reply what a test chooses.

use luagate::{Gate, GateBuilder};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The address of a server that gives each packet to `reply`. `None` ends the connection; an empty reply is
/// no reply.
pub(super) fn server(reply: impl Fn(&str) -> Option<Vec<u8>> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let reply = reply.clone();
            std::thread::spawn(move || answer(stream, reply));
        }
    });
    address
}

fn answer(mut stream: TcpStream, reply: impl Fn(&str) -> Option<Vec<u8>>) {
    let mut packet = [0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut packet) {
        let words = String::from_utf8_lossy(&packet[..count]).to_ascii_uppercase();
        let Some(bytes) = reply(&words) else { return };
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// As `server`: answers a ping, and everything else with `reply`.
pub(super) fn replying(reply: &'static str) -> String {
    server(move |words| {
        let reply = if words.contains("PING") { "+PONG\r\n" } else { reply };
        Some(reply.as_bytes().to_vec())
    })
}

/// An address at which no program listens.
pub(super) fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Settings for a server that does not answer: the failure comes soon.
pub(super) fn soon(url: &str) -> GateBuilder {
    within(url, Duration::from_millis(300))
}

/// Settings for a server that answers, also on a slow machine.
pub(super) fn patient(url: &str) -> GateBuilder {
    within(url, Duration::from_secs(20))
}

fn within(url: &str, time: Duration) -> GateBuilder {
    Gate::builder(url).connect_timeout(time).read_timeout(time).outage_timeout(Duration::from_millis(100))
}
