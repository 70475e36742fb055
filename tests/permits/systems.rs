//! Promise: luagate provides every system that is known from the literature, without its defects. Each test
//! has the name of a section of the guide. Common promises are tested in other files, one file for each
//! promise.

use crate::support::raw::Raw;
use crate::support::{Server, eventually, timed_out};

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::{AcquireError, PermitError, TryAcquireError};
use luagate::scripts::semaphore::Ask;
use luagate::{Cancel, Lease, Released, Resized, Revoked};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

fn until_waiting(semaphore: &luagate::Semaphore, count: u64) {
    eventually("they wait", || (semaphore.inspect().unwrap().waiter_count == count).then_some(()));
}

#[test]
fn basic_counting_semaphore() {
    // A caller with a short timeout does not affect a holder with a long one. A release reports if its permit
    // had timed out.
    let server = Server::any();
    let gate = server.gate();
    let remote = gate.semaphore("remote", 2);
    let long = remote.clone().lease(Lease::fixed(SOON)).try_acquire().unwrap();
    let short = remote.clone().lease(Lease::fixed(Duration::from_millis(500)));
    let short = eventually("a grant that arrives in time", || short.try_acquire().ok());
    let third = remote.try_acquire();
    assert!(matches!(third, Err(TryAcquireError::Denied(_))) || short.is_lost(), "{third:?}");
    drop(third);
    eventually("the short lease ends", || remote.try_acquire().ok()).release().unwrap();
    assert_eq!(short.release().unwrap(), Released::Gone);
    assert_eq!(long.release().unwrap(), Released::Released);
}

#[test]
fn fair_semaphore() {
    let server = Server::any();
    let remote = server.gate().semaphore("remote", 1);
    let looked_at = remote.clone();
    let held = remote.acquire().unwrap();
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for place in 0..5 {
            let (order, remote) = (&order, server.gate().semaphore("remote", 1));
            scope.spawn(move || {
                let permit = remote.acquire().unwrap();
                order.lock().unwrap().push(place);
                permit.release().unwrap();
            });
            until_waiting(&looked_at, place + 1);
        }
        held.release().unwrap();
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn refreshed_semaphore() {
    // A late refresh adds no holder, not even for a moment.
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let lost = raw.grant(Ask { lease_ms: 20, ..raw.ask("lost") });
    raw.wait_until(lost.expires_at.unwrap());
    assert_eq!(raw.refresh("lost", 10_000), None);
    assert_eq!(raw.in_use(), 0);
    raw.grant(raw.ask("next"));
    assert_eq!(raw.refresh("lost", 10_000), None);
    assert!(raw.refresh("next", 20_000).is_some());
}

#[test]
fn race_free_semaphore() {
    // Many connections request the last permit at once, without a lock around the calls. Exactly one gets it,
    // every time.
    let server = Server::any();
    let gates: Vec<_> = (0..4).map(|_| server.gate()).collect();
    for round in 0..50 {
        let name = format!("last-{round}");
        let start = std::sync::Barrier::new(8);
        let taken: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|n| {
                    let last = gates[n % 4].semaphore(&name, 1);
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        last.try_acquire().ok()
                    })
                })
                .collect();
            racers.into_iter().filter_map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 1, "round {round}");
    }
}

#[test]
fn lock_with_identifier_timeout_and_lease() {
    let server = Server::any();
    let gate = server.gate();
    let market = gate.mutex("market").with(|lock| lock.lease(Lease::fixed(SOON)));
    let guard = market.lock().unwrap();
    // Only the owner can release, and no key is without a TTL.
    assert_eq!(market.revoke("somebody-else").unwrap(), Revoked::Nothing);
    assert!(market.try_lock().is_err());
    let mut con = server.connection();
    for key in server.all_keys() {
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut con).unwrap();
        assert!(ttl > 0, "{key}: {ttl}");
    }
    let begun = Instant::now();
    timed_out(|| market.try_lock_for(Duration::from_millis(100)));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(guard.release().unwrap(), Released::Released);
}

#[test]
fn fine_grained_locks() {
    // Two callers lock the same two mutexes in opposite orders. Both get both, one after the other.
    let server = Server::any();
    let gate = server.gate();
    std::thread::scope(|scope| {
        for names in [["a", "b"], ["b", "a"]] {
            let gate = &gate;
            scope.spawn(move || {
                for _ in 0..100 {
                    let guard = gate.mutexes(names).acquire_timeout(SOON).unwrap();
                    guard.release().unwrap();
                }
            });
        }
    });
    let held = gate.mutex("b").lock().unwrap();
    let both = gate.mutexes(["a", "b"]);
    let in_the_way = timed_out(|| both.acquire_timeout(Duration::from_millis(20)));
    assert_eq!(in_the_way.name, "b");
    gate.mutex("a").try_lock().unwrap().release().unwrap();
    held.release().unwrap();
}

#[test]
fn named_semaphore_with_identities() {
    let server = Server::any();
    let gate = server.gate();
    let seats = gate.stored_semaphore("seats").lease(Lease::PERMANENT);
    let Err(TryAcquireError::Invalid(invalid)) = seats.try_acquire() else {
        panic!("granted without a limit")
    };
    assert!(invalid.to_string().contains("no limit"), "{invalid}");
    assert!(seats.available_permits().is_err());
    seats.resize(2).unwrap();
    let ann = seats.clone().id("ann");
    let _ = ann.try_acquire().unwrap().into_id();
    // The same identity counts once, and is held permanently.
    assert!(matches!(ann.try_acquire(), Err(TryAcquireError::AlreadyHeld(_))));
    let seen = seats.inspect().unwrap();
    assert_eq!((seen.limit, seen.in_use), (Some(2), 1));
    assert_eq!(seen.holders[0].remaining, None);
    // A limit below the number of held permits is stored, not ignored.
    let bob = seats.clone().id("bob").try_acquire().unwrap();
    seats.resize(1).unwrap();
    bob.release().unwrap();
    assert!(seats.clone().id("cy").try_acquire().is_err());
    assert_eq!(seats.revoke("ann").unwrap(), Revoked::Held);
    assert_eq!(seats.revoke("ann").unwrap(), Revoked::Nothing);
    let cy = seats.clone().id("cy").try_acquire().unwrap();
    assert_eq!(cy.release().unwrap(), Released::Released);
}

#[test]
fn java_util_concurrent_semaphore() {
    let server = Server::any();
    let pool = server.gate().semaphore("pool", 10).label("thread-1");
    let mut three = pool.acquire_many(3).unwrap();
    three.release_some(1).unwrap();
    assert_eq!(pool.available_permits().unwrap(), 8);
    let drained = pool.try_acquire_available().unwrap();
    assert_eq!(drained.permits(), 8);
    let nothing_left = pool.try_acquire_available();
    assert!(matches!(nothing_left, Err(TryAcquireError::Denied(_))));
    timed_out(|| pool.acquire_many_timeout(2, Duration::from_millis(20)));
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let interruptible = pool.clone().cancelled_by(&cancel);
        let waiting = scope.spawn(move || interruptible.acquire());
        until_waiting(&pool, 1);
        let seen = pool.inspect().unwrap();
        assert_eq!(seen.waiters[0].label(), Some("thread-1"));
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(AcquireError::Cancelled(_))));
    });
    // Compare and resize: the same call again changes nothing.
    let reduced = pool.compare_and_resize(Some(10), 7).unwrap();
    assert_eq!(reduced, Resized::Resized { old: Some(10), in_use: 10 });
    let again = pool.compare_and_resize(Some(10), 7).unwrap();
    assert_eq!(again, Resized::Unchanged { current: Some(7) });
    drained.release().unwrap();
    assert_eq!(pool.available_permits().unwrap(), 5);
}

#[test]
fn redisson_semaphores() {
    let server = Server::any();
    let gate = server.gate();
    let licences = gate.stored_semaphore("licences").lease(Lease::fixed(SOON));
    // trySetPermits sets the limit once, addPermits wakes a waiter.
    let set = licences.compare_and_resize(Some(0), 1).unwrap();
    assert_eq!(set, Resized::Resized { old: None, in_use: 0 });
    let again = licences.compare_and_resize(Some(0), 5).unwrap();
    assert_eq!(again, Resized::Unchanged { current: Some(1) });
    let permit = licences.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| licences.acquire_many(2));
        eventually("a request above the limit is refused", || waiting.is_finished().then_some(()));
        assert!(waiting.join().unwrap().is_err());
        let waiting = scope.spawn(|| licences.acquire());
        until_waiting(&licences, 1);
        licences.compare_and_resize(Some(1), 3).unwrap();
        waiting.join().unwrap().unwrap().release().unwrap();
    });
    // updateLeaseTime and getLeaseTime, from this and another client.
    permit.refresh_for(SOON * 6).unwrap();
    assert!(permit.remaining().unwrap() > SOON * 5);
    let seen = licences.inspect().unwrap();
    assert!(seen.holders[0].remaining.unwrap() > SOON * 5);
    let id = permit.into_id();
    let adopted = licences.clone().lease(Lease::fixed(SOON * 3)).adopt(&id).unwrap();
    let left = adopted.remaining().unwrap();
    assert!(left > SOON * 2 && left < SOON * 3 + SOON / 2, "{left:?}");
    assert_eq!(licences.revoke(&id).unwrap(), Revoked::Held);
    assert!(matches!(adopted.refresh(), Err(PermitError::Lost(_))));
    assert_eq!(licences.inspect().unwrap().in_use, 0);
}

#[test]
fn redisson_read_write_fenced_and_multi_locks() {
    let server = Server::any();
    let gate = server.gate();
    let prices = gate.rwlock("prices");
    let before = prices.read().unwrap();
    before.release().unwrap();
    let mut reading = prices.write().unwrap();
    reading.downgrade().unwrap();
    let other = prices.try_read().unwrap();
    assert!(other.fence() > reading.fence());
    drop((reading, other));
    // Every guard has a fence, and it increases also if the keys were lost in between.
    let mutex = gate.mutex("file");
    let first = mutex.lock().unwrap();
    let fence = first.fence();
    first.release().unwrap();
    let keys = server.all_keys();
    let _: () = redis::Commands::del(&mut server.connection(), keys).unwrap();
    let guard = gate.mutexes(["file", "other"]).acquire_timeout(SOON).unwrap();
    assert!(guard.get("file").unwrap().fence() > fence);
}

#[test]
fn autocomplete_on_a_list() {
    let server = Server::any();
    let contacts = Recent::new(&server.gate(), "user").keep(3);
    for contact in ["Jean", "jo", "Jeannie", "Bob", "Jean"] {
        contacts.add(contact).unwrap();
    }
    let found = contacts.matching("JE", 10).unwrap();
    assert_eq!(found, ["Jean", "Jeannie"]);
    let all = contacts.matching("", 10).unwrap();
    assert_eq!(all, ["Jean", "Bob", "Jeannie"]);
    assert!(contacts.remove("Bob").unwrap());
}

#[test]
fn autocomplete_on_a_sorted_set() {
    // Without sentinel members: a search finds only members, while others search and join.
    let server = Server::any();
    let gate = server.gate();
    let guild = Prefix::new(&gate, "guild");
    guild.add(["jean", "jeannie", "žofie"]).unwrap();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let guild = &guild;
            scope.spawn(move || {
                for round in 0..100 {
                    guild.add([format!("k{n}-{round}")]).unwrap();
                    let found = guild.matching("je", 10).unwrap();
                    assert_eq!(found, ["jean", "jeannie"]);
                }
            });
        }
    });
    assert_eq!(guild.matching("ž", 10).unwrap(), ["žofie"]);
    assert_eq!(guild.remove(["jean"]).unwrap(), 1);
}
