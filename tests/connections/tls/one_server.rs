//! Promise: on one TLS server everything works as without TLS, also after a connection broke.

use super::{REPORTED, both, use_it};
use crate::own_tls;
use crate::support::{self, eventually};
use crate::tls_server::Authority;
use std::time::Instant;

#[test]
fn everything_works_with_a_private_ca_and_a_client_certificate() {
    let authority = Authority::new("one");
    for version in ["TLSv1.3", "TLSv1.2"] {
        let arguments = ["--tls-protocols", version];
        let server = own_tls!(authority.server(&authority.identity(), &arguments));
        let gate =
            both(&server.url, &authority, &authority.identity()).prefix(&server.prefix).open().unwrap();
        use_it(&server, &gate);
    }
}

#[test]
fn a_broken_connection_is_replaced() {
    let authority = Authority::new("one");
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let gate = both(&server.url, &authority, &authority.identity()).prefix(&server.prefix).open().unwrap();
    let semaphore = gate.semaphore("broken", 1);
    let held = semaphore.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (semaphore.acquire().unwrap(), Instant::now()));
        eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        let mut con = server.connection();
        support::kill_connections(&mut con, "normal");
        assert_eq!(support::kill_connections(&mut con, "pubsub"), 1);
        eventually("the waiter is subscribed again", || {
            (support::inboxes(&mut con, &server.prefix) == 1).then_some(())
        });
        let start = Instant::now();
        held.release().unwrap();
        assert!(waiter.join().unwrap().1 - start < REPORTED);
    });
}
