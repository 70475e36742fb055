//! Promise: network faults in calls and replies never lead to more holders than the limit, double grants or
//! permits lost for ever. When the network works again, every waiter is granted.

use crate::own;
use crate::support::SOON;
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::stop::Stop;
use crate::support::workers::{self, Workers};
use crate::support::{Server, eventually, inboxes, kill_connections};

use futures_executor::block_on;
use luagate::errors::{AcquireError, TryAcquireError};
use luagate::{Gate, Lease, Permit, Released};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

#[test]
fn workers_continue_while_a_proxy_delays_cuts_and_swallows() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let workers = Workers::new(&server, &proxy.url, 6);
    let seed = workers::seed();
    println!("faults from seed {seed}");
    proxy.do_harm(seed);
    for _ in 0..8 {
        workers.continue_for(20);
    }
    let harmed = proxy.behave();
    assert!(harmed > 20, "only {harmed} connections had a fault");
    workers.finish(&server, &workers::broken_connections());
}

/// Each thread has an id of its own, and makes one call after the other.
#[test]
fn consecutive_calls_with_own_ids_keep_the_limit_while_a_proxy_delays_and_cuts() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let gate = Gate::builder(&proxy.url).prefix(&server.prefix).open().unwrap();
    let (held, grants) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let seed = workers::seed();
    println!("faults from seed {seed}");
    let (mut random, mut con) = (Random::new(seed), server.connection());
    let until = Instant::now() + Duration::from_secs(8);
    let latest = until + Duration::from_secs(60); // on a busy machine there are few grants in 8 s
    let goes_on = || {
        let now = Instant::now();
        now < until || now < latest && grants.load(Ordering::Relaxed) < GRANTS
    };
    std::thread::scope(|scope| {
        // A call that the server has not read when it ends a connection never runs.
        scope.spawn(|| {
            while goes_on() {
                proxy.delay_replies([Duration::from_millis(random.below(600))]);
                std::thread::sleep(Duration::from_millis(100 + random.below(400)));
                if random.below(4) == 0 {
                    kill_connections(&mut con, "normal");
                }
            }
            proxy.delay_no_more();
        });
        for number in 0..6 {
            let semaphore =
                gate.semaphore("own", 1).lease(Lease::fixed(OWN_LEASE)).id(&format!("own-{number}"));
            let (held, grants, goes_on) = (&held, &grants, &goes_on);
            scope.spawn(move || {
                while goes_on() {
                    match semaphore.acquire_timeout(OWN_LEASE * 2) {
                        Ok(permit) => {
                            grants.fetch_add(1, Ordering::Relaxed);
                            use_alone(permit, held);
                        }
                        Err(error) => {
                            let is_false =
                                matches!(error, AcquireError::Revoked(_) | AcquireError::AlreadyHeld(_));
                            assert!(!is_false, "nobody revokes, and nobody else uses the id: {error}");
                        }
                    }
                }
            });
        }
    });
    assert!(grants.into_inner() >= GRANTS, "too few grants");
}

const GRANTS: usize = 20;

const OWN_LEASE: Duration = Duration::from_millis(400);

/// Checks that no other permit is valid, and that this one is not gone if its lease has not ended.
fn use_alone(permit: Permit, held: &Mutex<Vec<Weak<Permit>>>) {
    let permit = Arc::new(permit);
    let mut all = held.lock().unwrap();
    all.retain(|other| other.strong_count() > 0);
    all.push(Arc::downgrade(&permit));
    let valid: Vec<_> = all.iter().filter_map(Weak::upgrade).filter(|permit| !permit.is_lost()).collect();
    assert!(valid.len() < 2, "more than the limit: {valid:?}");
    drop(valid);
    drop(all);
    std::thread::sleep(Duration::from_millis(permit.fence() % 50)); // it is used
    // If the first release does not arrive, the lease may end before the next one.
    let ends = Instant::now() + permit.remaining().unwrap();
    if permit.fence().is_multiple_of(2)
        && let Some(permit) = Arc::into_inner(permit)
    {
        let released = permit.release();
        let is_gone = matches!(released, Ok(Released::Gone));
        assert!(ends <= Instant::now() || !is_gone, "a permit that was not lost is gone");
    }
}

#[test]
fn workers_continue_while_replies_are_lost_after_the_script_ran() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let workers = Workers::new(&server, &proxy.url, 6);
    for count in 1..=30 {
        proxy.lose_replies(count % 4);
        eventually("the replies are lost", || proxy.is_done().then_some(()));
        workers.continue_for(5);
    }
    workers.finish(&server, &workers::broken_connections());
}

#[test]
fn workers_continue_while_connections_go_silent() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let workers = Workers::new(&server, &proxy.url, 6);
    for _ in 0..2 {
        proxy.go_silent();
        workers.continue_for(20);
    }
    workers.finish(&server, &workers::broken_connections());
}

#[test]
fn a_server_that_answers_byte_by_byte_keeps_no_caller_longer_than_the_read_timeout() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let gate = Gate::builder(&proxy.url)
        .prefix(&server.prefix)
        .read_timeout(Duration::from_millis(300))
        .open()
        .unwrap();
    let semaphore = gate.semaphore("s", 5);
    semaphore.try_acquire().unwrap().release().unwrap(); // the scripts are loaded
    // A reply takes more than ten seconds, and no pause in it is as long as the timeout.
    proxy.trickle_replies(Duration::from_millis(200));
    let calls: [(&str, &dyn Fn() -> bool); 4] = [
        ("try_acquire", &|| semaphore.try_acquire().is_err()),
        ("try_acquire_async", &|| block_on(semaphore.try_acquire_async()).is_err()),
        ("acquire_timeout", &|| semaphore.acquire_timeout(Duration::from_millis(300)).is_err()),
        ("acquire_timeout_async", &|| {
            block_on(semaphore.acquire_timeout_async(Duration::from_millis(300))).is_err()
        }),
    ];
    for (name, fails) in calls {
        let begun = Instant::now();
        assert!(fails(), "{name}");
        assert!(begun.elapsed() < SOON / 2, "{name} took {:?}", begun.elapsed());
    }
    proxy.trickle_replies(Duration::ZERO);
    let other = server.gate().semaphore("s", 5);
    eventually("nothing is left", || (other.inspect().unwrap().in_use == 0).then_some(()));
}

/// The connection of a lost call is open as long as the server is silent there, and that call may run later.
#[test]
fn flush_does_not_wait_for_a_server_that_is_silent_to_a_lost_call() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let gate = Gate::builder(&proxy.url).read_timeout(Duration::from_millis(300)).open().unwrap();
    let seat = gate.semaphore("seat", 1).lease(Lease::PERMANENT);
    drop(seat.try_acquire().unwrap());
    gate.flush().unwrap();
    proxy.go_silent();
    assert!(matches!(seat.try_acquire(), Err(TryAcquireError::Unknown(_))));
    gate.flush().unwrap();
    assert_eq!(seat.inspect().unwrap().in_use, 0);
}

#[test]
fn workers_continue_while_their_connections_are_killed_all_the_time() {
    let server = own!(Server::private(&[]));
    let workers = Workers::new(&server, &server.url, 6);
    let mut con = server.connection();
    for round in 0..30 {
        kill_connections(&mut con, if round % 2 == 0 { "pubsub" } else { "normal" });
        workers.continue_for(3);
    }
    workers.finish(&server, &workers::broken_connections());
}

#[test]
fn a_subscriber_that_is_disconnected_at_its_start_reconnects() {
    let server = own!(Server::private(&[]));
    let held = server.gate().mutex("held").lock().unwrap();
    let gates: Vec<_> = (0..20).map(|_| server.gate()).collect();
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let _stop = stop.at_end();
        scope.spawn(|| {
            let mut con = server.connection();
            while !stop.is_set() {
                kill_connections(&mut con, "pubsub");
            }
        });
        // Long enough for each gate to be in line and so to subscribe.
        let wait = |gate: &Gate| gate.mutex("held").try_lock_for(Duration::from_secs(2));
        let waits: Vec<_> = gates.iter().map(|gate| scope.spawn(move || wait(gate))).collect();
        let ends: Vec<_> = waits.into_iter().map(|wait| wait.join()).collect();
        for end in ends {
            assert!(matches!(end.unwrap(), Err(AcquireError::TimedOut(_))));
        }
    });
    let mut con = server.connection();
    std::thread::scope(|scope| {
        let wait = |gate: &Gate| drop(gate.mutex("held").try_lock_for(6 * SOON).unwrap());
        gates.iter().for_each(|gate| drop(scope.spawn(move || wait(gate))));
        eventually("every gate receives its grants", || {
            (inboxes(&mut con, &server.prefix) == gates.len()).then_some(())
        });
        held.release().unwrap();
    });
}
