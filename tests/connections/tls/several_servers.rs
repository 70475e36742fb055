//! Promise: TLS is used for every node of a cluster, and with sentinels for every master that they name.

use super::use_it;
use super::{REPORTED, assert_reported, both};
use crate::own_tls;
use crate::support::cluster::Cluster;
use crate::support::group::Start;
use crate::support::sentinel::{MASTER, Sentinels};
use crate::support::{self, eventually};
use crate::tls_server::Authority;

use luagate::Gate;
use luagate::autocomplete::Recent;
use luagate::errors::CallError;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

/// A waiter receives the permit that the holder releases, by message.
fn hand_over(gate: &Gate, name: &str) {
    let semaphore = gate.semaphore(name, 1);
    let held = semaphore.acquire_timeout(support::SOON).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (semaphore.acquire().unwrap(), Instant::now()));
        eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        let start = Instant::now();
        held.release().unwrap();
        let (granted, reported) = waiter.join().unwrap();
        assert!(reported - start < REPORTED, "{:?}", reported - start);
        granted.release().unwrap();
    });
}

#[test]
fn tls_is_used_for_every_node_of_a_cluster_including_discovered_ones() {
    let authority = Authority::new("one");
    let start: &Start = &|arguments, folder| authority.member(arguments, folder);
    let cluster = own_tls!(Cluster::of(start));
    let url = format!("rediss+cluster://{}", cluster.addresses()[0]);
    let gate = both(&url, &authority, &authority.identity()).prefix(&cluster.prefix).open().unwrap();
    // One node redirects to another, with `ASK` and then with `MOVED`.
    let masters = cluster.masters();
    let name = cluster.name_on(masters[0]);
    let slot = cluster.slot(&format!("{{{name}}}"));
    let moving = cluster.begin_move(slot, masters[1]);
    let recent = Recent::new(&gate, &name); // one key, which can have moved while others have not
    recent.add("bob").unwrap();
    moving.end(&cluster);
    recent.add("ann").unwrap();
    hand_over(&gate, &name);
    for master in masters {
        hand_over(&gate, &cluster.name_on(master));
    }
    // TLS errors are reported here too.
    let own = authority.identity();
    let other = Authority::new("other");
    assert_reported(both(&url, &other, &own).open(), &["is not trusted", "`root_certificates`"]);
    let none = Gate::builder(&url).root_certificates(&authority.pem);
    assert_reported(none.open(), &["requires a certificate"]);
    assert_reported(Gate::open(&url.replace("rediss", "redis")), &["uses TLS at this port"]);
}

#[test]
fn tls_is_used_for_sentinels_and_every_master_that_they_name() {
    let authority = Authority::new("one");
    let start: &Start = &|arguments, folder| authority.member(arguments, folder);
    let mut group = own_tls!(Sentinels::of(start));
    let url = |scheme: &str| {
        let sentinels = group.sentinels.addresses().join(",");
        format!("{scheme}+sentinel://{sentinels}/{MASTER}")
    };
    let (url, plain) = (url("rediss"), url("redis"));
    let gate = both(&url, &authority, &authority.identity()).prefix(&group.prefix).open().unwrap();
    hand_over(&gate, "all");
    assert_reported(Gate::open(&url), &["is not trusted"]);
    assert_reported(Gate::open(&plain), &["uses TLS at this port"]);
    let master = group.master();
    group.settle();
    group.kill(master);
    group.promoted(master);
    let lock = eventually("the new master is used", || gate.mutex("m").try_lock().ok());
    lock.release().unwrap();
    hand_over(&gate, "all");
}

/// A sentinel without TLS that names the server at this address as the master.
fn plain_sentinel(master: &str) -> String {
    let (host, port) = master.split_once(':').unwrap();
    let reply = format!("*2\r\n${}\r\n{host}\r\n${}\r\n{port}\r\n", host.len(), port.len());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let reply = reply.clone();
            std::thread::spawn(move || {
                while let Ok(1..) = stream.read(&mut [0; 1_000]) {
                    let _ = stream.write_all(reply.as_bytes());
                }
            });
        }
    });
    url
}

#[test]
fn tls_is_used_for_a_master_whose_sentinels_speak_no_tls() {
    let authority = Authority::new("one");
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let sentinel = plain_sentinel(server.address()).replace("redis://", "");
    let own = authority.identity();
    let address = |scheme: &str| {
        Gate::builder(&format!("{scheme}+sentinel://{sentinel}/{MASTER}"))
            .sentinels_as("redis://any")
            .root_certificates(&authority.pem)
            .client_certificate(&own.chain, &own.key)
            .prefix(&server.prefix)
    };
    use_it(&server, &address("rediss").open().unwrap());
    match address("redis").open() {
        Err(CallError::Invalid(invalid)) => assert_eq!(invalid.what(), "url", "{invalid}"),
        other => panic!("certificates that no connection uses were accepted: {other:?}"),
    }
    let plain = format!("redis+sentinel://{sentinel}/{MASTER}");
    assert_reported(Gate::open(&plain), &["uses TLS at this port"]);
}
