//! Promise: with `min_replicas` a grant or a new lease counts only after that number of replicas has
//! confirmed it.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually, within};

use luagate::errors::{AcquireError, FailureKind, PermitError, TryAcquireError};
use luagate::{Gate, GateBuilder, Lease};
use std::time::{Duration, Instant};

/// The wait for a replica that does not confirm. `PATIENT` is for one that does.
const WITHIN: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(600);

/// Makes a master start the sync with a replica immediately.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// A replica of `master` that has already confirmed a write.
fn replica_of(master: &Server) -> Server {
    let address = master.url.trim_start_matches("redis://");
    let (host, port) = address.trim_end_matches('/').split_once(':').unwrap();
    let mut arguments = AT_ONCE.to_vec();
    arguments.extend(["--replicaof", host, port]);
    let replica = Server::private_tcp(&arguments).unwrap();
    let mut con = master.connection();
    // Some servers read a replica's state only from its report every second, and count no confirmation
    // before.
    eventually("the replica confirms", || {
        let mut write = redis::pipe();
        write.cmd("SET").arg("followed").arg(1).ignore();
        write.cmd("WAIT").arg(1).arg(1_000);
        let (confirmed,): (u32,) = write.query(&mut con).unwrap();
        (confirmed > 0).then_some(())
    });
    replica
}

/// Blocks until the replica has confirmed every write of its master.
fn has_confirmed_all(master: &Server) {
    let mut con = master.connection();
    eventually("the replica confirms all", || {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("replication").query(&mut con).unwrap();
        let number = |name: &str| {
            let (_, rest) = info.split_once(name)?;
            rest.split(|end: char| !end.is_ascii_digit()).next()
        };
        let confirmed = number(",offset=").expect("a replica");
        (Some(confirmed) == number("master_repl_offset:")).then_some(())
    });
}

fn builder(server: &Server) -> GateBuilder {
    Gate::builder(&server.url).prefix(&server.prefix)
}

/// A gate whose grants one replica must confirm within this time.
fn gate(server: &Server, within: Duration) -> Gate {
    let builder = builder(server).read_timeout(within + PATIENT);
    builder.min_replicas(1, within).open().unwrap()
}

fn take_over(replica: &Server) {
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut replica.connection()).unwrap();
}

#[test]
fn a_promoted_replica_has_every_confirmed_permit() {
    let master = own!(Server::private_tcp(&AT_ONCE));
    let replica = replica_of(&master);
    let gate = gate(&master, PATIENT);
    let mut ids = Vec::new();
    for number in 0..200 {
        let semaphore = gate.semaphore(&format!("s{number}"), 1).lease(Lease::fixed(LEASE));
        let permit = match number % 2 {
            0 => semaphore.try_acquire().unwrap(),
            _ => semaphore.acquire_timeout(Duration::from_secs(10)).unwrap(),
        };
        ids.push(permit.into_id());
    }
    // Permits that another holder released, which the server grants by message.
    let first = gate.semaphore("handed", 1).lease(Lease::fixed(LEASE));
    let held = first.try_acquire().unwrap();
    let waits = std::thread::spawn(move || first.acquire_timeout(Duration::from_secs(10)).unwrap());
    let other = gate.semaphore("handed", 1);
    eventually("it waits", || (other.inspect().unwrap().waiter_count == 1).then_some(()));
    held.release().unwrap();
    let handed = waits.join().unwrap();
    take_over(&replica);
    let after = Gate::builder(&replica.url).prefix(&master.prefix).open().unwrap();
    for (number, id) in ids.iter().enumerate() {
        let holders = after.semaphore(&format!("s{number}"), 1).inspect().unwrap();
        assert_eq!(&holders.holders[0].id, id);
    }
    let holders = after.semaphore("handed", 1).inspect().unwrap().holders;
    assert_eq!(holders[0].id, handed.id());
}

#[test]
fn a_grant_that_too_few_replicas_confirm_is_released_and_an_error() {
    let master = own!(Server::private_tcp(&AT_ONCE));
    let gate = gate(&master, WITHIN);
    let semaphore = gate.semaphore("s", 1).lease(Lease::fixed(LEASE));
    let Err(TryAcquireError::Failed(failure)) = semaphore.try_acquire() else {
        panic!("granted without a replica");
    };
    assert_eq!(failure.kind(), FailureKind::TooFewReplicas);
    assert!(failure.to_string().contains("0 of 1 confirmed within 1s"), "{failure}");
    let Err(AcquireError::Failed(failure)) = semaphore.acquire_timeout(Duration::from_secs(5)) else {
        panic!("granted without a replica");
    };
    assert_eq!(failure.kind(), FailureKind::TooFewReplicas);
    assert!(gate.mutex("m").try_lock().is_err());
    assert!(gate.mutexes(["{g}:a", "{g}:b"]).try_acquire().is_err());
    assert_eq!(semaphore.inspect().unwrap().in_use, 0);
    assert_eq!(gate.mutex("m").inspect().unwrap().in_use, 0);
    assert_eq!(gate.mutex("{g}:b").inspect().unwrap().in_use, 0);
}

#[test]
fn a_wait_ends_at_its_timeout_although_no_replica_has_confirmed_its_grant() {
    let master = own!(Server::private_tcp(&AT_ONCE));
    let gate = gate(&master, PATIENT);
    let semaphore = gate.semaphore("s", 1).lease(Lease::fixed(LEASE));
    let begun = Instant::now();
    let outcome = semaphore.acquire_timeout(Duration::from_millis(100));
    assert!(begun.elapsed() < PATIENT / 2, "{:?}", begun.elapsed());
    let Err(AcquireError::Unknown(failure)) = outcome else {
        panic!("granted without a replica: {outcome:?}");
    };
    assert_eq!(failure.kind(), FailureKind::TimedOut);
    let other = builder(&master).open().unwrap().semaphore("s", 1);
    let released = within(PATIENT * 2, || (other.inspect().unwrap().in_use == 0).then_some(()));
    assert!(released.is_some(), "the permit is not released");
}

#[test]
fn a_new_lease_that_no_replica_has_does_not_count() {
    let master = own!(Server::private_tcp(&AT_ONCE));
    let mut replica = replica_of(&master);
    let gate = gate(&master, WITHIN);
    let permit = gate.semaphore("s", 1).lease(Lease::fixed(LEASE)).try_acquire().unwrap();
    replica.pause();
    let before = permit.remaining().unwrap();
    let Err(PermitError::Failed(failure)) = permit.refresh_for(LEASE * 2) else {
        panic!("confirmed by a paused replica");
    };
    assert_eq!(failure.kind(), FailureKind::TooFewReplicas);
    assert!(permit.remaining().unwrap() <= before);
    // The master has run it, so a shorter lease counts.
    assert!(permit.refresh_for(LEASE / 2).is_err());
    assert!(permit.remaining().unwrap() <= LEASE / 2, "{:?}", permit.remaining());
    replica.resume();
    permit.refresh_for(LEASE * 2).unwrap();
    assert!(permit.remaining().unwrap() > LEASE);
}

#[test]
fn a_new_lease_that_no_replica_has_does_not_count_after_the_script_was_lost_twice() {
    let master = own!(Server::private_tcp(&AT_ONCE));
    let mut replica = replica_of(&master);
    let proxy = Proxy::new(&master);
    let gate = Gate::builder(&proxy.url).prefix(&master.prefix);
    let gate = gate.read_timeout(WITHIN + PATIENT).min_replicas(1, WITHIN);
    let gate = gate.open().unwrap();
    let permit = gate.semaphore("s", 1).lease(Lease::fixed(LEASE)).try_acquire().unwrap();
    let forget = || {
        let mut flush = redis::cmd("SCRIPT");
        flush.arg("FLUSH").exec(&mut master.connection()).unwrap();
    };
    forget();
    proxy.forget_loaded_scripts();
    // A call before its script is loaded writes nothing, so it would seem confirmed while the replica lacks
    // earlier writes.
    has_confirmed_all(&master);
    replica.pause();
    let before = permit.remaining().unwrap();
    let Err(PermitError::Failed(failure)) = permit.refresh_for(LEASE * 2) else {
        panic!("confirmed by a paused replica");
    };
    assert_eq!(failure.kind(), FailureKind::TooFewReplicas);
    assert!(permit.remaining().unwrap() <= before);
    replica.resume();
    forget(); // a call that sends its script also loads it
    permit.refresh_for(LEASE * 2).unwrap();
}

#[test]
fn renewal_continues_when_the_replicas_return() {
    let master = own!(Server::private_tcp(&AT_ONCE));
    let mut replica = replica_of(&master);
    let gate = gate(&master, WITHIN);
    let semaphore = gate.semaphore("s", 1).lease(Lease::renewed(Duration::from_secs(12)));
    let permit = semaphore.try_acquire().unwrap();
    replica.pause();
    // The next renewal comes with two thirds of the lease left. Less than half means that a renewal did not
    // count.
    eventually("a renewal is not confirmed", || {
        (permit.remaining().unwrap() < Duration::from_secs(6)).then_some(())
    });
    replica.resume();
    eventually("it is renewed again", || {
        (permit.remaining().unwrap() > Duration::from_secs(8)).then_some(())
    });
    assert!(!permit.is_lost());
}

#[test]
fn a_confirmation_time_beyond_the_read_timeout_is_refused_when_the_gate_is_opened() {
    let server = Server::any();
    for (count, timeout) in [(0, WITHIN), (1, Duration::ZERO), (1, Duration::from_secs(2))] {
        let error = builder(&server).min_replicas(count, timeout).open().unwrap_err();
        assert!(error.to_string().contains("min_replicas"), "{error}");
    }
}
