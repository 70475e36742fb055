//! Promise: one connection serves any number of threads, and is made again when it has broken.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{self, Server, eventually};

use luagate::{Gate, Released};
use std::time::Duration;

#[test]
fn threads_share_one_connection() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let gate = server.gate();
    // The limit covers all requests of the test: on a busy machine dropped permits are released later.
    let semaphore = gate.semaphore("shared", 64 * 20);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                for _ in 0..20 {
                    semaphore.try_acquire().unwrap().release().unwrap();
                }
            });
        }
    });
    eventually("all permits are released", || {
        (semaphore.available_permits().unwrap() == 64 * 20).then_some(())
    });
    assert_eq!(clients(&mut con), 2, "the connection of the gate, and that of this test");
    assert_eq!(gate.counters().reconnects, 0);
}

#[test]
fn connections_that_the_server_closed_are_replaced_without_an_error() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("closed", 100);
    for _ in 0..20 {
        let permits: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| semaphore.try_acquire().unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut con = server.connection();
        support::kill_connections(&mut con, "normal");
        for permit in permits {
            permit.release().unwrap();
        }
    }
    let mut con = server.connection();
    // The connections of the test itself close a little later.
    eventually("the gate has one connection", || (clients(&mut con) == 2).then_some(()));
}

/// How many connections are open, with this one.
fn clients(con: &mut redis::Connection) -> usize {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(con).unwrap();
    list.lines().count()
}

#[test]
fn a_gate_works_again_after_a_restart_of_the_server() {
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("restarted", 1);
    let before = semaphore.try_acquire().unwrap();
    server.kill();
    assert!(semaphore.try_acquire().is_err());
    server.start_again();
    // For 5 ms, a call can get the failure of another attempt to connect, which began before the restart.
    let after = eventually("the gate works again", || semaphore.try_acquire().ok());
    assert!(after.fence() > before.fence());
    assert!(before.refresh().is_err(), "the server lost its data at the restart");
    after.release().unwrap();
}

#[test]
fn a_dropped_gate_leaves_no_connection_open() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let gate = server.gate();
    let holder = gate.semaphore("gone", 1).acquire().unwrap();
    let waited = gate.semaphore("gone", 1).acquire_timeout(Duration::from_millis(500));
    assert!(waited.is_err());
    eventually("its connections are open", || (clients(&mut con) > 1).then_some(()));
    drop((holder, gate));
    eventually("all connections close", || (clients(&mut con) == 1).then_some(()));
}

#[test]
fn every_script_declares_its_keys_and_they_share_a_slot() {
    // A cluster node refuses a script that uses keys outside the slot of its declared keys.
    let server = own!(Server::cluster_node());
    let gate = server.gate();
    for name in ["a", "market:account:17", "{group}:b"] {
        let semaphore = gate.semaphore(name, 3);
        let permit = semaphore.acquire_many(3).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| semaphore.acquire().unwrap().release().unwrap());
            eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
            permit.refresh().unwrap();
            permit.release().unwrap();
            waiter.join().unwrap();
        });
        semaphore.resize(4).unwrap();
        semaphore.unpin_limit().unwrap();
        drop(gate.mutex(name).lock().unwrap());
    }
}

#[test]
fn late_replies_are_not_used_for_later_calls() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let gate = Gate::builder(&proxy.url).prefix(&server.prefix).open().unwrap();
    let semaphore = gate.semaphore("late", 2);
    let dropped = semaphore.try_acquire().unwrap();
    let released = semaphore.try_acquire().unwrap();
    // The server has not loaded the script, so the call sends it too: two replies. The drop does not wait for
    // them and leaves the release to the background, which sends it again.
    proxy.delay_replies([Duration::ZERO, Duration::from_millis(300)]);
    drop(dropped);
    let other = server.gate().semaphore("late", 2);
    eventually("the permit is released", || (other.inspect().unwrap().in_use == 1).then_some(()));
    assert_eq!(released.release().unwrap(), Released::Released);
    assert_eq!(semaphore.available_permits().unwrap(), 2);
}
