//! Promise: no forged or replayed message makes a client release a permit that another process holds with the
//! same id.

use super::{LONG, channel_of, forgeries, let_it_read, publish, waiter_of};
use crate::own;
use crate::support::raw::{Listener, Raw};
use crate::support::{Server, eventually};

use luagate::errors::AcquireError;
use luagate::scripts::semaphore::{Ask, LookupAnswer};
use luagate::{Gate, Semaphore};
use std::time::{Duration, Instant};

/// Asserts that the messages published so far do not make the client release the permit of `id`.
fn assert_kept(server: &Server, gate: &Gate, raw: &mut Raw, id: &str) {
    let_it_read(server, gate);
    // A release would be sent in the background, as the first task there.
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        assert!(raw.holds(id), "the client released another process's permit");
    }
}

/// Cancels a wait with the id `worker` while the server does not answer. The background then gives up its
/// place in line.
fn give_up_unanswered(semaphore: Semaphore, server: &mut Server, raw: &mut Raw) {
    let cancel = luagate::Cancel::new();
    let asks = semaphore.clone().cancelled_by(&cancel);
    let waiting = std::thread::spawn(move || asks.acquire().unwrap_err());
    waiter_of(raw);
    semaphore.inspect().unwrap(); // this reply follows the reply to the waiter
    server.pause();
    cancel.cancel();
    assert!(matches!(waiting.join().unwrap(), AcquireError::Cancelled(_)));
    server.resume();
    eventually("the background gives up the place in line", || {
        matches!(raw.lookup("worker"), LookupAnswer::Gone { .. }).then_some(())
    });
}

#[test]
fn a_forged_grant_for_an_abandoned_wait_releases_nothing() {
    let mut server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: LONG, ..raw.ask("holder") });
    let gate = Gate::builder(&server.url)
        .prefix(&server.prefix)
        .read_timeout(Duration::from_secs(1))
        .open()
        .unwrap();
    give_up_unanswered(gate.semaphore("raw", 1).id("worker"), &mut server, &mut raw);
    let channel = channel_of(&server);
    // Another process uses the id again.
    raw.assert_released("holder");
    let grant = raw.grant(Ask { lease_ms: LONG, ..raw.ask("worker") });
    let mut stranger = server.connection();
    for payload in forgeries("worker", grant.fence, grant.now) {
        publish(&mut stranger, &channel, &payload);
    }
    assert_kept(&server, &gate, &mut raw, "worker");
}

#[test]
fn a_genuine_message_for_an_earlier_wait_of_the_same_id_releases_nothing() {
    let mut server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let long = |id| Ask { id, limit: 1, lease_ms: LONG, ..Ask::default() };
    raw.grant(long("holder"));
    let gate = Gate::builder(&server.url)
        .prefix(&server.prefix)
        .read_timeout(Duration::from_secs(1))
        .open()
        .unwrap();
    let semaphore = gate.semaphore("raw", 1).id("worker");
    // The earlier wait. The attacker records its grant message.
    let asks = semaphore.clone();
    let waiting = std::thread::spawn(move || asks.acquire().unwrap());
    waiter_of(&mut raw);
    let channel = channel_of(&server);
    let mut listener = Listener::on(&server, &channel);
    raw.assert_released("holder");
    let message = listener.next_grant().join(" ");
    waiting.join().unwrap().release().unwrap();
    // Another wait is given up while the server does not answer. The client therefore releases a grant that
    // may still arrive for it.
    raw.grant(long("holder"));
    give_up_unanswered(semaphore, &mut server, &mut raw);
    // Another process uses the id again.
    raw.assert_released("holder");
    raw.grant(long("worker"));
    publish(&mut server.connection(), &channel, message.as_bytes());
    assert_kept(&server, &gate, &mut raw, "worker");
}
