//! Promise: many permits are refreshed or released together, in one round trip for each hundred. The outcome
//! of one does not affect the others.

use crate::own;
use crate::support::raw::Raw;
use crate::support::{Server, eventually};

use luagate::errors::{CallError, FailureKind, PermitError};
use luagate::{Gate, Lease, Permit, Released};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

fn permits(gate: &Gate, count: u32) -> Vec<Permit> {
    let semaphore = gate.semaphore("raw", count).lease(Lease::fixed(LONG));
    let permits = (0..count).map(|_| semaphore.try_acquire().unwrap());
    permits.collect()
}

/// The number of times that the server has read from a client.
fn reads(server: &Server) -> u64 {
    let info: String = redis::cmd("INFO").arg("stats").query(&mut server.connection()).unwrap();
    let reads = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    reads.unwrap().parse().unwrap()
}

#[test]
fn a_hundred_permits_need_one_packet() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let permits = permits(&gate, 100);
    // From here on the server has the scripts loaded.
    permits[0].refresh().unwrap();
    gate.semaphore("other", 1).try_acquire().unwrap().release().unwrap();
    let before = reads(&server);
    assert!(Permit::refresh_each(&permits).iter().all(Result::is_ok));
    assert!(Permit::release_each(permits).iter().all(Result::is_ok));
    // The server reads a long packet in pieces of 16 kB. Single calls would take 200 reads: a round trip each
    // for 100 permits, twice.
    let reads = reads(&server) - before;
    assert!(reads < 50, "{reads} reads");
    assert_eq!(gate.semaphore("raw", 100).inspect().unwrap().in_use, 0);
}

#[test]
fn each_permit_has_its_own_outcome_at_its_index() {
    let server = Server::any();
    let gate = server.gate();
    let mut raw = Raw::new(&server, 250);
    let permits = permits(&gate, 250);
    let lost = [0, 99, 100, 249];
    for place in lost {
        raw.assert_released(permits[place].id());
    }
    // The second call already knows which permits are lost. It still refreshes the others.
    for _ in 0..2 {
        let refreshed = Permit::refresh_each(&permits);
        assert_eq!(refreshed.len(), 250);
        for (place, (permit, outcome)) in permits.iter().zip(refreshed).enumerate() {
            match outcome {
                Ok(()) if !lost.contains(&place) => assert!(!permit.is_lost()),
                Err(PermitError::Lost(reported)) if lost.contains(&place) => {
                    assert_eq!(reported.id, permit.id());
                }
                other => panic!("{place}: {other:?}"),
            }
        }
    }
    let released = Permit::release_each(permits);
    for (place, outcome) in released.into_iter().enumerate() {
        let expected = if lost.contains(&place) { Released::Gone } else { Released::Released };
        assert_eq!(outcome.unwrap(), expected, "{place}");
    }
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn refreshing_many_renews_their_leases() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 3).lease(Lease::fixed(LONG));
    let permits: Vec<Permit> = (0..3).map(|_| semaphore.try_acquire().unwrap()).collect();
    for permit in &permits {
        permit.refresh_for(Duration::from_secs(60)).unwrap();
        assert!(permit.remaining().unwrap() <= Duration::from_secs(60));
    }
    assert!(Permit::refresh_each(&permits).iter().all(Result::is_ok));
    for (permit, holder) in permits.iter().zip(semaphore.inspect().unwrap().holders) {
        assert!(permit.remaining().unwrap() > LONG / 2);
        assert!(holder.remaining.unwrap() > LONG / 2);
    }
}

#[test]
fn guards_of_several_locks_and_servers_are_released_together() {
    let servers = [own!(Server::private(&[])), own!(Server::private(&[]))];
    let gates = servers.each_ref().map(Server::gate);
    let lock = |n: usize| gates[n % 2].mutex(&format!("m{n}")).lock().unwrap();
    let guards: Vec<Permit> = (0..6).map(lock).collect();
    for refreshed in Permit::refresh_each(&guards) {
        refreshed.unwrap();
    }
    for released in Permit::release_each(guards) {
        assert_eq!(released.unwrap(), Released::Released);
    }
    for n in 0..6 {
        drop(gates[n % 2].mutex(&format!("m{n}")).try_lock().unwrap());
    }
}

#[test]
fn an_overwritten_key_does_not_prevent_other_releases() {
    let server = Server::any();
    let gate = server.gate();
    let guards: Vec<Permit> = ["a", "b", "c"]
        .map(|name| gate.mutex(name).with(|lock| lock.lease(Lease::fixed(LONG))).lock().unwrap())
        .into();
    let meta = guards[1].keys().list()[0].to_owned();
    let mut con = server.connection();
    redis::cmd("SET").arg(&meta).arg("").exec(&mut con).unwrap();
    let refreshed = Permit::refresh_each(&guards);
    assert!(refreshed[0].is_ok() && refreshed[2].is_ok(), "{refreshed:?}");
    assert!(matches!(&refreshed[1], Err(PermitError::Failed(f)) if f.kind() == FailureKind::WrongType));
    let mut released = Permit::release_each(guards);
    assert!(released[0].is_ok() && released[2].is_ok(), "{released:?}");
    let error = released.swap_remove(1).unwrap_err();
    assert!(matches!(error.error(), CallError::Failed(f) if f.kind() == FailureKind::WrongType));
    redis::cmd("DEL").arg(&meta).exec(&mut con).unwrap();
    // The permit is still held, and its release can be retried.
    error.into_permit().release().unwrap();
}

#[test]
fn unreleased_permits_are_returned_with_the_error_or_released_in_the_background() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url)
        .prefix(&server.prefix)
        .read_timeout(Duration::from_secs(1))
        .open()
        .unwrap();
    let permits = permits(&gate, 40);
    server.pause();
    let released = Permit::release_each(permits);
    let mut errors = Vec::new();
    for outcome in released {
        let error = outcome.unwrap_err();
        assert!(matches!(error.error(), CallError::Unknown(f) if f.kind() == FailureKind::TimedOut));
        errors.push(error);
    }
    let dropped = errors.split_off(20);
    let begun = std::time::Instant::now();
    drop(dropped); // the drop does not wait for the server again
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    server.resume();
    eventually("they are released", || {
        (gate.semaphore("raw", 40).inspect().ok()?.in_use <= 20).then_some(())
    });
    for error in errors {
        error.into_permit().release().unwrap();
    }
    eventually("all permits are released", || {
        (gate.semaphore("raw", 40).inspect().ok()?.in_use == 0).then_some(())
    });
}
