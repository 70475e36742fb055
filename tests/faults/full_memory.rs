//! Promise: if the server's memory is full, acquiring is a clear error and holders can still release and
//! refresh.

use crate::own;
use crate::support::Server;
use crate::support::raw::{Listener, Raw};

use luagate::errors::{CallError, FailureKind, TryAcquireError};
use luagate::scripts::semaphore::{Ask, ReleaseAnswer};

fn fill_memory(raw: &mut Raw) {
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut raw.con).unwrap();
}

#[test]
fn acquiring_with_full_memory_is_a_clear_error_and_changes_nothing() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 2);
    let gate = server.gate();
    raw.grant(raw.ask("holder"));
    fill_memory(&mut raw);
    let before = raw.dump();
    let Err(CallError::Failed(failure)) = raw.try_acquire(raw.ask("other")) else { panic!() };
    assert_eq!(failure.kind(), FailureKind::OutOfMemory);
    assert_eq!(raw.dump(), before);
    let Err(TryAcquireError::Failed(failure)) = gate.semaphore("raw", 2).try_acquire() else { panic!() };
    assert_eq!(failure.kind(), FailureKind::OutOfMemory);
    assert!(failure.to_string().contains("maxmemory"), "{failure}");
}

#[test]
fn with_full_memory_holders_can_release_refresh_and_hand_over() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 5);
    let mut inbox = Listener::new(&server, "full");
    let channel = inbox.channel.clone();
    raw.grant(Ask { permits: Some(3), ..raw.ask("three") });
    raw.grant(raw.ask("refreshing"));
    raw.grant(Ask { lease_ms: 0, ..raw.ask("permanent") });
    raw.queue(Ask { permits: Some(4), wait_ms: 60_000, inbox: &channel, ..raw.ask("waiter") });
    fill_memory(&mut raw);
    assert!(raw.refresh("refreshing", 20_000).is_some());
    assert!(raw.refresh("permanent", 20_000).is_some());
    assert!(raw.refresh("permanent", 0).is_some());
    let answer = raw.keep("three", 1).unwrap();
    assert!(matches!(answer, ReleaseAnswer::Released { left: 1, .. }));
    raw.assert_released("permanent");
    raw.assert_released("three");
    assert_eq!(inbox.next_grant()[..2], ["waiter", "4"]);
    assert_eq!(raw.in_use(), 5);
    raw.assert_released("waiter");
    raw.assert_released("refreshing");
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn with_full_memory_an_id_can_be_abandoned() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let inbox = Listener::new(&server, "abandon");
    let first = raw.grant(Ask { lease_ms: 100, ..raw.ask("holder") });
    raw.refresh("holder", 60_000);
    raw.queue(Ask { wait_ms: 600_000, inbox: &inbox.channel, ..raw.ask("waiter") });
    fill_memory(&mut raw);
    // The script would store a hint for the head, which waits for the end of the refreshed lease.
    assert_eq!(raw.release("stranger"), ReleaseAnswer::Gone);
    // Now the script would also store another time: no lease has ended, although one could have.
    raw.wait_until(first.expires_at.unwrap());
    assert_eq!(raw.release("stranger"), ReleaseAnswer::Gone);
    raw.assert_denied(raw.ask("newcomer"));
    assert_eq!(raw.release("waiter"), ReleaseAnswer::Cancelled);
}
