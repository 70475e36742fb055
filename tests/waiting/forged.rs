//! Promise: an attacker who knows a channel, the ids in line and all earlier messages cannot mislead a
//! client. The client does not accept a permit that the server did not grant, release a permit that is held,
//! spin, or wait longer than without the attacker.

mod floods;
mod grants;
mod releases;
mod signatures;

use crate::support::raw::Raw;
use crate::support::{Server, eventually};

use luagate::{Gate, Lease, Permit};
use redis::{Commands, Connection};
use sha1_smol::Sha1;
use std::thread::JoinHandle;
use std::time::Duration;

const LONG: u64 = 600_000;
const MINUTE: Duration = Duration::from_secs(60);

fn sha1(text: &str) -> String {
    Sha1::from(text).digest().to_string()
}

/// The channel of the only client that is subscribed on this server under the test's prefix.
fn channel_of(server: &Server) -> String {
    let mut con = server.connection();
    eventually("a client subscribes", || {
        let channels: Vec<String> = redis::cmd("PUBSUB")
            .arg("CHANNELS")
            .arg(format!("{}:inbox:*", server.prefix))
            .query(&mut con)
            .unwrap();
        channels.into_iter().next()
    })
}

/// Blocks until there is a waiter, and returns its id.
fn waiter_of(raw: &mut Raw) -> String {
    eventually("there is a waiter", || Some(raw.inspect().waiters.first()?.id.clone()))
}

/// Waits in line in a thread.
fn wait_for_permit(gate: &Gate, permits: u32) -> JoinHandle<Permit> {
    let semaphore = gate.semaphore("raw", 2).lease(Lease::fixed(Duration::from_millis(LONG)));
    std::thread::spawn(move || semaphore.acquire_many_timeout(permits, MINUTE).unwrap())
}

/// Blocks until the client has read all messages published so far: it is granted a permit by message.
fn let_it_read(server: &Server, gate: &Gate) {
    let mut raw = Raw::named(server, "sync", 1);
    raw.grant(raw.ask("holder"));
    let semaphore = gate.semaphore("sync", 1);
    let waiting = std::thread::spawn(move || semaphore.acquire_timeout(MINUTE).unwrap());
    waiter_of(&mut raw);
    raw.assert_released("holder");
    waiting.join().unwrap().release().unwrap();
}

/// Messages that an attacker would forge for a wait of `id` with this ticket.
fn forgeries(id: &str, ticket: u64, now: u64) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let ends = [
        (now + LONG).to_string(),
        "-1".to_owned(),
        u64::MAX.to_string(),
        i64::MAX.to_string(),
        now.to_string(),
        "0".to_owned(),
        "1e99".to_owned(),
        "-2".to_owned(),
    ];
    for permits in ["1", "2", "0", "4294967295", "4294967296", "-1", "01", "+1"] {
        for fence in [ticket + 1, ticket, ticket - 1, 1, u64::MAX] {
            for end in &ends {
                for reported in [now, 0, u64::MAX] {
                    payloads.push(format!("{id} {permits} {fence} {end} {reported}"));
                }
            }
        }
    }
    // Hints.
    for at in ["0", "-1", "1", "18446744073709551615"] {
        payloads.push(format!("{id} 0 0 {at} {now}"));
        payloads.push(format!("{id} 0 0 {at} {}", u64::MAX));
    }
    let grant = format!("{id} 1 {} {} {now}", ticket + 1, now + LONG);
    for signature in [
        "".to_owned(),
        " ".to_owned(),
        "0".repeat(40),
        sha1(""),
        sha1(&grant),
        sha1(&format!("#{grant}")),
        sha1(&format!("{id}{grant}")),
        "f".repeat(4_000),
    ] {
        payloads.push(format!("{grant} {signature}"));
    }
    let more = [" ", "\0", "\n", " 1 1 1 1", "  "];
    payloads.extend(more.map(|end| format!("{grant}{end}")));
    let mut payloads: Vec<Vec<u8>> = payloads.into_iter().map(String::into_bytes).collect();
    payloads.push(grant.replace(' ', "\u{a0}").into_bytes());
    payloads.push([grant.as_bytes(), b"\xff\xfe"].concat());
    payloads.push(format!("{grant} {}", "x".repeat(4_000_000)).into_bytes());
    payloads.push(format!("{} 1 {} -1 {now}", "x".repeat(1_000_000), ticket + 1).into_bytes());
    payloads
}

fn publish(con: &mut Connection, channel: &str, payload: &[u8]) {
    let received: u32 = con.publish(channel, payload).unwrap();
    assert!(received > 0, "{channel} has no subscriber");
}
