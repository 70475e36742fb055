//! Promise: with sentinels a failover needs no action by the user. Calls, waits and renewals continue on the
//! new master.

use crate::own;
use crate::support::history::{Forgotten, Op};
use crate::support::sentinel::{MASTER, Sentinels};
use crate::support::stub_sentinel::StubSentinel;
use crate::support::workers::{self, Deployment, Workers};
use crate::support::{SOON, Server, eventually, inboxes};

use luagate::errors::FailureKind;
use luagate::{Gate, GateBuilder, Lease};
use redis::Connection;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(600);

/// Everything works again within this time after the promotion.
const RECOVERED: Duration = Duration::from_secs(3);

fn url(group: &Sentinels) -> String {
    let sentinels = group.sentinels.addresses().join(",");
    format!("redis+sentinel://{sentinels}/{MASTER}")
}

fn builder(group: &Sentinels) -> GateBuilder {
    Gate::builder(&url(group)).prefix(&group.prefix)
}

impl Deployment for Sentinels {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn gate(&self) -> Gate {
        builder(self).open().unwrap()
    }

    fn connection_for(&self, _key: &str) -> Connection {
        self.connection(self.master())
    }
}

#[test]
fn calls_waits_and_renewals_work_within_3_s_of_the_promotion() {
    let mut group = own!(Sentinels::new());
    let gate = builder(&group).read_timeout(Duration::from_millis(500)).open().unwrap();
    let held = gate.semaphore("s", 1).lease(Lease::renewed(SOON * 6)).try_acquire().unwrap();
    let waiting = {
        let semaphore = gate.semaphore("s", 1).lease(Lease::fixed(LEASE));
        std::thread::spawn(move || semaphore.acquire_timeout(MINUTE).unwrap())
    };
    eventually("it waits", || (gate.semaphore("s", 1).inspect().unwrap().waiter_count == 1).then_some(()));
    let master = group.master();
    group.settle();
    group.kill(master);
    group.promoted(master);
    let promoted = Instant::now();
    eventually("a call succeeds", || held.refresh().ok());
    held.release().unwrap();
    waiting.join().unwrap().release().unwrap();
    assert!(promoted.elapsed() < RECOVERED, "{:?}", promoted.elapsed());
}

#[test]
fn a_stalled_sentinel_delays_only_the_first_connection() {
    let mut group = own!(Sentinels::new());
    group.sentinels.pause(0);
    let asked = Instant::now();
    let gate = builder(&group).connect_timeout(SOON / 4).open().unwrap();
    gate.mutex("m").try_lock().unwrap().release().unwrap();
    assert!(asked.elapsed() < SOON / 4, "{:?}", asked.elapsed());
    // From here on the sentinel that answered is asked first.
    let asked = Instant::now();
    gate.mutex("m").try_lock().unwrap().release().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
}

fn asking(sentinels: &[StubSentinel], prefix: &str) -> GateBuilder {
    let addresses = sentinels.iter().map(|sentinel| sentinel.address.as_str());
    let addresses: Vec<&str> = addresses.collect();
    let url = format!("redis+sentinel://{}/{MASTER}", addresses.join(","));
    Gate::builder(&url).prefix(prefix)
}

#[test]
fn a_silent_sentinel_uses_only_its_share_of_the_connect_timeout() {
    let server = own!(Server::private_tcp(&[]));
    let sentinels = [StubSentinel::silent(), StubSentinel::naming(&server)];
    // The maximum time to connect: a third for each sentinel and a third for the master.
    let within = Duration::from_secs(6);
    let gate = asking(&sentinels, &server.prefix);
    let gate = gate.connect_timeout(within).read_timeout(within);
    let asked = Instant::now();
    let gate = gate.open().unwrap();
    assert!(asked.elapsed() < within, "{:?}", asked.elapsed());
    gate.mutex("m").try_lock().unwrap().release().unwrap();
}

#[test]
fn a_former_master_that_a_sentinel_still_names_is_not_used() {
    let master = own!(Server::private_tcp(&[]));
    let (host, port) = master.address().split_once(':').unwrap();
    // This replica accepts every write.
    let as_before = ["--replicaof", host, port, "--replica-read-only", "no"];
    let before = own!(Server::private_tcp(&as_before));
    let [late, well] = [&before, &master].map(StubSentinel::naming);
    let sentinels = [late, well];
    let gate = asking(&sentinels, &master.prefix).open().unwrap();
    let held = gate.mutex("m").with(|lock| lock.lease(Lease::fixed(LEASE))).try_lock().unwrap();
    let there = master.gate().mutex("m").inspect().unwrap();
    assert_eq!(there.holders.len(), 1, "granted by the former master");
    held.release().unwrap();
    // The sentinel names no other server, so there is no master.
    let error = asking(&sentinels[..1], &master.prefix).open().unwrap_err();
    let luagate::errors::CallError::Failed(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.kind(), FailureKind::NotReady, "{failure}");
}

#[test]
fn errors_about_sentinels_name_the_cause() {
    let group = own!(Sentinels::new());
    let other = url(&group).replace(MASTER, "another");
    let error = Gate::open(&other).unwrap_err();
    assert!(error.to_string().contains("do not know the master \"another\""), "{error}");
    // A server that is not a sentinel.
    let server = group.urls()[0].trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let error = Gate::open(&format!("redis+sentinel://{server}/{MASTER}")).unwrap_err();
    assert!(error.to_string().contains("SENTINEL"), "{error}");
    let error = Gate::open("redis+sentinel://127.0.0.1:1/x").unwrap_err();
    let luagate::errors::CallError::Failed(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.kind(), FailureKind::Unreachable);
}

#[test]
fn workers_continue_while_masters_crash() {
    let mut group = own!(Sentinels::new());
    let workers = Workers::new(&group, &url(&group), 6);
    for _ in 0..2 {
        workers.continue_for(20);
        let master = group.master();
        workers.recorded(&Op::Forget(Forgotten::TheLast), || {
            group.kill(master);
            group.promoted(master);
        });
        workers.continue_for(20);
        group.start(master);
        group.settle();
    }
    workers.finish(&group, &workers::broken_connections());
}

/// The former master keeps running and acts as a master until a sentinel reconfigures it.
#[test]
fn after_a_manual_failover_the_former_master_receives_no_calls() {
    let group = own!(Sentinels::new());
    let gate = builder(&group).open().unwrap();
    let semaphore = gate.semaphore("s", 1).lease(Lease::fixed(LEASE));
    let held = semaphore.try_acquire().unwrap();
    let waiting = {
        let semaphore = semaphore.clone();
        std::thread::spawn(move || semaphore.acquire_timeout(MINUTE).unwrap())
    };
    eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
    let before = group.master();
    redis::cmd("ACL")
        .arg(&["SETUSER", "default", "-slaveof", "-replicaof"])
        .exec(&mut group.connection(before))
        .unwrap();
    group.settle();
    let after = group.fail_over();
    let at = Gate::builder(group.urls()[after]).prefix(&group.prefix);
    let there = at.open().unwrap();
    eventually("calls go to the new master", || {
        let lock = gate.mutex("m").with(|lock| lock.lease(Lease::fixed(LEASE))).try_lock().ok()?;
        let is_there = there.mutex("m").inspect().unwrap().in_use == 1;
        lock.release().unwrap();
        is_there.then_some(())
    });
    let listens = |node: usize| inboxes(&mut group.connection(node), &group.prefix) > 0;
    eventually("the waiter subscribes to the new master", || {
        (listens(after) && !listens(before)).then_some(())
    });
    held.release().unwrap();
    waiting.join().unwrap().release().unwrap();
    assert!(group.is_master(before));
}

#[test]
fn a_manual_failover_is_noticed() {
    let group = own!(Sentinels::new());
    let workers = Workers::new(&group, &url(&group), 6);
    workers.continue_for(20);
    workers.recorded(&Op::TwoMasters, || {
        workers.recorded(&Op::Forget(Forgotten::TheLast), || group.fail_over());
    });
    workers.continue_for(20);
    workers.finish(&group, &workers::broken_connections());
}
