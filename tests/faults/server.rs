//! Promise: while a server has its data, its faults never cause more holders than the limit. The faults are
//! restarts with or without data, lost scripts, full memory and lost keys. When the server works again, every
//! waiter is granted.

use crate::own;
use crate::support::history::{Forgotten, Op, Rules};
use crate::support::workers::{self, Workers};
use crate::support::{self, Server};

use luagate::errors::{FailureKind, PermitError, TryAcquireError};
use luagate::{Gate, Lease, Permit, Released};
use redis::Commands;
use std::time::{Duration, Instant};

/// A permit of another semaphore, with a lease longer than the fault.
fn bystander(server: &Server) -> Permit {
    let gate = server.gate();
    gate.semaphore("bystander", 1).lease(Lease::fixed(support::SOON * 6)).acquire().unwrap()
}

#[test]
fn a_server_killed_and_restarted_with_its_log_has_lost_nothing() {
    let server = Server::private(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut server = own!(server);
    let workers = Workers::new(&server, &server.url, 6);
    let permit = bystander(&server);
    for _ in 0..3 {
        server.kill();
        server.start_again();
        permit.refresh().unwrap();
        workers.continue_for(30);
    }
    assert!(!workers.errors().contains_key("Lost"), "{:?}", workers.errors());
    workers.finish(&server, &workers::broken_connections());
    let other = server.gate().semaphore("bystander", 1);
    assert!(matches!(other.try_acquire(), Err(TryAcquireError::Denied(_))));
    assert_eq!(permit.release().unwrap(), Released::Released);
}

#[test]
fn after_a_restart_without_data_holders_are_notified_and_fences_keep_increasing() {
    let mut server = own!(Server::private(&[]));
    let workers = Workers::new(&server, &server.url, 6);
    for _ in 0..3 {
        let permit = bystander(&server);
        workers.recorded(&Op::Forget(Forgotten::Everything), || {
            server.kill();
            server.start_again();
        });
        let next = bystander(&server);
        assert!(next.fence() > permit.fence());
        assert!(matches!(permit.refresh(), Err(PermitError::Lost(_))));
        assert!(permit.is_lost());
        assert_eq!(permit.release().unwrap(), Released::Gone);
        next.refresh().unwrap();
        next.release().unwrap();
        workers.continue_for(30);
    }
    workers.finish(&server, &workers::broken_connections());
}

/// The connection is idle: only the gate itself can notice that it has ended. The lease is much longer than
/// the test.
#[test]
fn the_holders_of_an_idle_gate_notice_at_once_that_the_server_has_lost_its_data() {
    let mut server = own!(Server::private(&[]));
    let gates = [server.gate(), futures_executor::block_on(Gate::builder(&server.url).open_async()).unwrap()];
    for (round, gate) in gates.iter().enumerate() {
        let permits: Vec<_> = (0..3).map(|n| gate.mutex(&format!("idle:{n}")).lock().unwrap()).collect();
        if round == 1 {
            std::thread::sleep(Duration::from_millis(600)); // the gate has looked at its connection
        }
        server.kill();
        if round == 1 {
            std::thread::sleep(Duration::from_millis(1_500)); // it notices during the outage
            assert!(permits.iter().all(|permit| !permit.is_lost()), "the server may come back with its data");
        }
        server.start_again();
        support::within(Duration::from_millis(1_500), || permits.iter().all(Permit::is_lost).then_some(()))
            .expect("all are lost");
        assert!(permits.into_iter().all(|permit| permit.release().unwrap() == Released::Gone));
    }
}

/// All of them are renewed in batches, between which other calls run.
#[test]
fn many_holders_notice_a_restart_without_data_and_delay_no_call() {
    const COUNT: u32 = 2_000;
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let (many, other) = (gate.semaphore("many", COUNT), gate.semaphore("other", 1));
    let permits: Vec<_> = (0..COUNT).map(|_| many.acquire().unwrap()).collect();
    server.kill();
    server.start_again();
    let mut slowest = Duration::ZERO;
    let begun = Instant::now();
    support::eventually("all are lost", || {
        let start = Instant::now();
        let _ = other.try_acquire(); // the first one finds that the connection has ended
        slowest = slowest.max(start.elapsed());
        permits.iter().all(Permit::is_lost).then_some(())
    });
    println!("{COUNT} permits: all are lost after {:?}, the slowest call took {slowest:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5), "a third of the lease is 10 s");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

#[test]
fn a_server_that_kept_its_data_renews_idle_permits_after_a_restart() {
    let mut server = own!(Server::private(&["--appendonly", "yes", "--appendfsync", "always"]));
    let gate = server.gate();
    let permit = gate.mutex("kept").lock().unwrap();
    let renewed = || gate.counters().renewed;
    let before = renewed();
    server.kill();
    server.start_again();
    support::within(Duration::from_millis(1_500), || (renewed() > before).then_some(()))
        .expect("it is renewed");
    assert!(!permit.is_lost());
    assert_eq!(permit.release().unwrap(), Released::Released);
}

#[test]
fn workers_continue_while_scripts_are_flushed_all_the_time() {
    let server = own!(Server::private(&[]));
    let workers = Workers::new(&server, &server.url, 6);
    let mut con = server.connection();
    for _ in 0..2_000 {
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut con).unwrap();
    }
    workers.continue_for(30);
    assert!(workers.errors().is_empty(), "{:?}", workers.errors());
    workers.finish(&server, &Rules::new(workers::LIMIT));
}

#[test]
fn with_full_memory_holders_release_and_nothing_is_granted() {
    let server = own!(Server::private(&[]));
    let workers = Workers::new(&server, &server.url, 6);
    let mut con = server.connection();
    let mut set = |bytes: u32| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(bytes).exec(&mut con).unwrap();
    };
    for _ in 0..5 {
        let held = [bystander(&server), other(&server)];
        set(1);
        let Err(TryAcquireError::Failed(failure)) = server.gate().semaphore("free", 1).try_acquire() else {
            panic!()
        };
        assert_eq!(failure.kind(), FailureKind::OutOfMemory);
        // All holders release. Then there is no holder, and no permit is granted.
        let semaphore = server.gate().semaphore(workers::NAME, workers::LIMIT);
        support::eventually("all permits are released", || {
            (semaphore.inspect().unwrap().in_use == 0).then_some(())
        });
        let [released, refreshed] = held;
        refreshed.refresh().unwrap();
        assert_eq!(released.release().unwrap(), Released::Released);
        set(0);
        assert_eq!(refreshed.release().unwrap(), Released::Released);
        workers.continue_for(20);
    }
    for what in workers.errors().keys() {
        assert_eq!(what, "Failed OutOfMemory");
    }
    workers.finish(&server, &Rules::new(workers::LIMIT));
}

/// A permit of a third semaphore, with a lease longer than the fault.
fn other(server: &Server) -> Permit {
    let gate = server.gate();
    gate.semaphore("other", 1).lease(Lease::fixed(support::SOON * 6)).acquire().unwrap()
}

#[test]
fn workers_continue_while_keys_are_evicted_again_and_again() {
    let server = Server::any();
    let workers = Workers::new(&server, &server.url, 6);
    let mut con = server.connection();
    let keys = server.keys(workers::NAME).list().map(str::to_owned);
    let semaphore = server.gate().semaphore(workers::NAME, workers::LIMIT);
    for round in 0..4 {
        // The next key is lost while granting is still suspended for the previous loss.
        for key in 0..=round % 3 {
            let _: i64 = workers
                .recorded(&Op::Forget(Forgotten::OneKey), || con.del(&keys[(round + key) % 3]).unwrap());
            semaphore.revoke("nobody").unwrap(); // every script detects the loss
        }
        workers.continue_for(10);
    }
    workers.finish(&server, &Rules::new(workers::LIMIT));
}
