//! Promise: a wait continues after lost connections or a server restart. A grant that arrives after its end
//! is released.

use super::{LONG, LONG_MS, MINUTE, await_waiters, held};
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::stop::Stop;
use crate::support::{self, Server, eventually};

use luagate::errors::AcquireError;
use luagate::scripts::semaphore::Ask;
use luagate::{Cancel, Gate, Lease, Semaphore};
use std::time::{Duration, Instant};

/// Waits for a permit and drops it. Returns how long it waited.
fn time_in_line(semaphore: &Semaphore) -> Duration {
    let start = Instant::now();
    drop(semaphore.acquire_timeout(MINUTE).unwrap());
    start.elapsed()
}

#[test]
fn a_lost_subscription_is_reestablished_and_no_wait_hangs() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1);
    for _ in 0..10 {
        let holder = semaphore.acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| time_in_line(&semaphore));
            await_waiters(&mut raw, 1);
            support::kill_connections(&mut raw.con, "pubsub");
            holder.release().unwrap();
            let waited = waiter.join().unwrap();
            assert!(waited < Duration::from_secs(5), "woken only by its own recheck, after {waited:?}");
        });
    }
}

/// Messages have a connection of their own, so the calls continue on theirs.
#[test]
fn a_subscription_that_the_server_ends_because_its_buffer_is_full_delays_no_call_and_no_waiter() {
    let server = own!(Server::private(&["--client-output-buffer-limit", "pubsub", "64kb", "0", "0"]));
    let mut raw = Raw::new(&server, 1);
    let semaphore = server.gate().semaphore("raw", 1);
    let holder = semaphore.acquire().unwrap();
    let calls_before = connections(&mut raw, "normal");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| time_in_line(&semaphore));
        await_waiters(&mut raw, 1);
        let subscribed = connections(&mut raw, "pubsub");
        let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut raw.con).unwrap();
        let [channel] = channels.as_slice() else { panic!("{channels:?}") };
        let flood = vec![b'x'; 8 << 20]; // more than the system's buffers take
        eventually("the server ends the subscription", || {
            redis::cmd("PUBLISH").arg(channel).arg(&flood).exec(&mut raw.con).unwrap();
            (connections(&mut raw, "pubsub") != subscribed).then_some(())
        });
        holder.release().unwrap();
        let waited = waiter.join().unwrap();
        assert!(waited < Duration::from_secs(5), "woken only by its own recheck, after {waited:?}");
    });
    assert_eq!(connections(&mut raw, "normal"), calls_before);
}

/// The ids of the server's connections of this kind.
fn connections(raw: &mut Raw, kind: &str) -> Vec<String> {
    let list: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg(kind).query(&mut raw.con).unwrap();
    list.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn waits_succeed_while_connections_are_killed_in_a_loop() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 2);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 2).lease(Lease::renewed(Duration::from_secs(2)));
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let stopping = stop.at_end();
        let killer = scope.spawn(|| {
            let mut kills = 0;
            let mut con = server.connection();
            while !stop.is_set() {
                for kind in ["normal", "pubsub"] {
                    kills += support::kill_connections(&mut con, kind);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            kills
        });
        let workers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut served = 0;
                    while served < 20 {
                        // Two broken connections in a row leave the outcome unknown. The call reports this,
                        // and no permit stays held.
                        match semaphore.acquire_timeout(MINUTE) {
                            Ok(permit) => {
                                served += 1;
                                drop(permit);
                            }
                            Err(AcquireError::Unknown(_) | AcquireError::Failed(_)) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        drop(stopping);
        let least = 4;
        assert!(killer.join().unwrap() > least, "nothing was killed");
    });
    raw.con = server.connection();
    eventually("every permit is released", || {
        let state = raw.inspect();
        (state.in_use == 0 && state.waiter_count == 0).then_some(())
    });
}

#[test]
fn a_wait_continues_after_a_restart_of_the_server() {
    let mut server = own!(Server::private(&[]));
    let semaphore = server.gate().semaphore("raw", 1);
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).unwrap().release());
        await_waiters(&mut raw, 1);
        semaphore.inspect().unwrap(); // this reply follows the reply to the waiter
        server.kill();
        server.start_again();
        // The server lost all data, also the holder.
        assert!(waiter.join().unwrap().is_ok());
    });
}

#[test]
fn waiters_keep_their_order_after_a_restart_without_data() {
    let mut server = own!(Server::private_tcp(&[]));
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    let proxies = [Proxy::new(&server), Proxy::new(&server)];
    let waiting: Vec<_> = (1..)
        .zip(&proxies)
        .map(|(place, proxy)| {
            let gate = Gate::builder(&proxy.url).prefix(&server.prefix);
            let gate = gate.outage_timeout(MINUTE).open().unwrap();
            let semaphore = gate.semaphore("raw", 1);
            let looks = semaphore.clone();
            let waiter = std::thread::spawn(move || drop(semaphore.acquire_timeout(MINUTE).unwrap()));
            await_waiters(&mut raw, place);
            looks.inspect().unwrap(); // this reply follows the reply to the waiter
            waiter
        })
        .collect();
    let places = |raw: &mut Raw| -> Vec<(String, u64)> {
        let waiters = raw.inspect().waiters.into_iter();
        waiters.map(|waiter| (waiter.id, waiter.ticket)).collect()
    };
    let before = places(&mut raw);
    for proxy in &proxies {
        proxy.refuse();
    }
    server.kill();
    server.start_again(); // it lost all data
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    // The second waiter reaches the server before the first.
    for (waiters, proxy) in (1..).zip(proxies.iter().rev()) {
        proxy.lead_to(&server);
        await_waiters(&mut raw, waiters);
    }
    assert_eq!(places(&mut raw), before);
    raw.assert_released("holder");
    for waiter in waiting {
        waiter.join().unwrap();
    }
}

/// Blocks until a permit was granted with a fence above `fence`, and all permits are released.
fn await_return(raw: &mut Raw, fence: u64) {
    eventually("a permit is granted and released", || {
        let state = raw.inspect();
        let is_granted = state.last_fence > fence;
        (is_granted && state.in_use == 0 && state.waiter_count == 0).then_some(())
    });
}

// The proxy cuts only the client's side. For the server, the lost subscription of an async gate still exists,
// and the grant is sent there.
#[test]
fn a_grant_that_arrives_for_an_abandoned_wait_is_released() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    let gate = Gate::builder(&proxy.url).prefix(&server.prefix).open().unwrap();
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(LONG));
    // From here on the client is subscribed, and nothing of it is left to be sent.
    let first = semaphore.clone();
    let first = std::thread::spawn(move || first.acquire_timeout(MINUTE).unwrap().release().unwrap());
    await_waiters(&mut raw, 1);
    raw.assert_released("holder");
    first.join().unwrap();
    raw.grant(held(&raw));
    // The first call arrives after the second. The second runs but its reply is lost. Both are released.
    proxy.overtake_call();
    proxy.lose_reply_of_script();
    let error = semaphore.acquire().unwrap_err();
    assert!(proxy.is_done());
    assert!(matches!(error, AcquireError::Unknown(_)), "{error}");
    await_waiters(&mut raw, 0);
    proxy.let_go();
    await_waiters(&mut raw, 1);
    let before = raw.inspect().last_fence;
    raw.assert_released("holder");
    await_return(&mut raw, before);
}

#[test]
fn a_call_of_a_wait_that_arrives_after_its_end_leaves_nothing_held() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    // Behind another waiter the client asks again every second.
    raw.queue(Ask { wait_ms: LONG_MS, inbox: "nobody", ..raw.ask("first") });
    let stop = Cancel::new();
    let gate = Gate::builder(&proxy.url).prefix(&server.prefix);
    let gate = gate.read_timeout(Duration::from_millis(300)).open().unwrap();
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(LONG)).cancelled_by(&stop);
    let waiting = std::thread::spawn(move || semaphore.acquire());
    await_waiters(&mut raw, 2);
    proxy.hold();
    eventually("the client asks again", || proxy.has_any_back().then_some(()));
    stop.cancel();
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(AcquireError::Cancelled(_))), "{ended:?}");
    await_waiters(&mut raw, 1); // its place was given up
    raw.release("first");
    raw.assert_released("holder");
    await_waiters(&mut raw, 0);
    let before = raw.inspect().last_fence;
    proxy.let_go();
    await_return(&mut raw, before);
}

#[test]
fn a_server_that_stays_unreachable_is_reported_as_a_failure() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url)
        .prefix(&server.prefix)
        .outage_timeout(Duration::from_millis(300))
        .open()
        .unwrap();
    let semaphore = gate.semaphore("raw", 1);
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 600, ..raw.ask("holder") });
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire());
        await_waiters(&mut raw, 1);
        server.kill();
        let start = Instant::now();
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::Failed(_) | AcquireError::Unknown(_)), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn a_wait_continues_after_a_script_kept_the_server_busy() {
    let server = own!(Server::private(&["--lua-time-limit", "50"]));
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let semaphore = server.gate().semaphore("raw", 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).map(drop));
        await_waiters(&mut raw, 1);
        scope.spawn(|| {
            let mut con = server.connection();
            redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut con)
        });
        let mut con = server.connection();
        eventually("the server is busy", || {
            let ping = redis::cmd("PING").exec(&mut con);
            ping.is_err_and(|error| error.code() == Some("BUSY")).then_some(())
        });
        // A second call gets the error of the busy server.
        let second = semaphore.acquire_timeout(Duration::from_millis(100));
        let Err(AcquireError::Failed(failure) | AcquireError::Unknown(failure)) = second else {
            panic!("{second:?}")
        };
        assert_eq!(failure.kind(), luagate::errors::FailureKind::NotReady);
        assert!(!waiter.is_finished());
        redis::cmd("SCRIPT").arg("KILL").exec(&mut con).unwrap();
        eventually("the server answers again", || redis::cmd("PING").exec(&mut con).ok());
        raw.assert_released("holder");
        assert!(waiter.join().unwrap().is_ok());
    });
}
