//! Promise: who waits in line is served as soon as it can be, hears of it however badly things go, and leaves nothing
//! behind when it gives up.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::{Listener, Raw};
use crate::support::{self, SOON, Server, eventually, process};

use luagate::errors::{AcquireError, LockAllError, WaitError};
use luagate::scripts::semaphore::{Ask, ReleaseAnswer};
use luagate::{Cancel, Gate, Revoked, Semaphore};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(600);
const LONG_MS: u64 = 600_000;

/// Waits until so many stand in line.
fn await_waiters(raw: &mut Raw, count: u64) {
    eventually("they stand in line", || (raw.inspect().waiter_count == count).then_some(()));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn one_subscriber_connection_however_many_threads_wait() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1);
    let holder = semaphore.acquire().unwrap();
    assert_eq!(subscribers(&mut raw), 0, "opened before anybody waited");
    std::thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..50).map(|_| scope.spawn(|| drop(semaphore.acquire_timeout(MINUTE).unwrap()))).collect();
        await_waiters(&mut raw, 50);
        assert_eq!(subscribers(&mut raw), 1);
        assert!(gate.open_connections() <= 8);
        holder.release().unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    assert_eq!(raw.in_use(), 0);
}

fn subscribers(raw: &mut Raw) -> usize {
    let list: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut raw.con).unwrap();
    list.lines().filter(|line| !line.is_empty()).count()
}

#[test]
fn a_lease_that_ends_is_taken_over_within_50_ms() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1);
    let late: Vec<Duration> = (0..5)
        .map(|round| {
            let mut raw = Raw::new(&server, 1);
            let crashed = format!("crashed-{round}");
            let end = raw.grant(Ask { lease_ms: 200, ..raw.ask(&crashed) }).expires_at.unwrap();
            let permit = semaphore.acquire_timeout(MINUTE).unwrap();
            // A fence is the server's time of the grant, in microseconds.
            let late = permit.fence().checked_sub(end * 1_000).expect("granted before the lease ended");
            permit.release().unwrap();
            Duration::from_micros(late)
        })
        .collect();
    assert!(median(late.clone()) <= Duration::from_millis(50), "{late:?}");
}

#[test]
fn who_comes_to_the_head_takes_over_within_50_ms_of_the_end_of_a_lease() {
    let server = Server::any();
    let gate = server.gate();
    let inbox = Listener::new(&server, "others");
    let begin = |round: usize| {
        let name = format!("raw-{round}");
        let mut raw = Raw::named(&server, &name, 1);
        let crashed = Ask { lease_ms: 2_500, ..raw.ask("crashed") };
        let end = raw.grant(crashed).expires_at.unwrap();
        // Behind so many the client would ask again after the end.
        let others = ["a", "b", "c", "d", "e"];
        for id in others {
            raw.queue(Ask { wait_ms: LONG_MS, inbox: &inbox.channel, ..raw.ask(id) });
        }
        let semaphore = gate.semaphore(&name, 1);
        let waiting = std::thread::spawn(move || semaphore.acquire_timeout(MINUTE).unwrap());
        await_waiters(&mut raw, 6);
        for id in others {
            assert_eq!(raw.release(id), ReleaseAnswer::Cancelled);
        }
        (end, waiting)
    };
    let rounds: Vec<_> = (0..5).map(begin).collect();
    let late = rounds.into_iter().map(|(end, waiting)| {
        let fence = waiting.join().unwrap().fence();
        let late = fence.checked_sub(end * 1_000);
        Duration::from_micros(late.expect("granted before the lease ended"))
    });
    let late: Vec<Duration> = late.collect();
    assert!(median(late.clone()) <= Duration::from_millis(50), "{late:?}");
}

#[test]
fn a_wait_that_may_be_cancelled_hears_at_once_though_the_wait_in_front_is_over() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let late = (0..3).map(|_| {
        // The first wait of a gate reads what comes for all.
        let first = server.gate().semaphore("raw", 1);
        let last = first.clone().cancelled_by(&Cancel::new());
        raw.grant(held(&raw));
        let first = std::thread::spawn(move || first.acquire_timeout(MINUTE).unwrap());
        await_waiters(&mut raw, 1);
        let last = std::thread::spawn(move || {
            let permit = last.acquire_timeout(MINUTE).unwrap();
            let granted = Instant::now();
            permit.release().unwrap();
            granted
        });
        await_waiters(&mut raw, 2);
        raw.assert_released("holder");
        let permit = first.join().unwrap();
        let released = Instant::now();
        permit.release().unwrap();
        last.join().unwrap().duration_since(released)
    });
    let late = late.min().unwrap();
    assert!(late <= Duration::from_millis(50), "{late:?}");
}

#[test]
fn a_timeout_is_kept_within_50_ms_and_leaves_nothing_in_the_queue() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let semaphore = server.gate().semaphore("raw", 1);
    let timeout = Duration::from_millis(120);
    let over: Vec<Duration> = (0..7)
        .map(|_| {
            let start = Instant::now();
            let Err(AcquireError::TimedOut(denied)) = semaphore.acquire_timeout(timeout) else { panic!() };
            assert_eq!((denied.in_use, denied.limit), (1, 1));
            assert_eq!(raw.inspect().waiter_count, 0);
            start.elapsed().checked_sub(timeout).expect("it gave up too early")
        })
        .collect();
    assert!(median(over.clone()) <= Duration::from_millis(50), "{over:?}");
}

#[test]
fn a_grant_that_crosses_a_timeout_is_used_or_given_back() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1).lease(MINUTE);
    assert_crossing_grants_are_used(&server, &semaphore, &semaphore);
}

#[test]
fn so_is_one_of_an_own_id() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1).lease(MINUTE);
    assert_crossing_grants_are_used(&server, &semaphore, &semaphore.clone().id("me"));
}

fn assert_crossing_grants_are_used(server: &Server, first: &Semaphore, second: &Semaphore) {
    let mut raw = Raw::new(server, 1);
    let (mut used, mut timed_out, mut unknown) = (0, 0, 0);
    let release_after = Duration::from_millis(4);
    // Shorter after a permit that was used, and longer after none: so release and timeout cross on any machine.
    let mut timeout = Duration::from_millis(5);
    for round in 0..200 {
        let mut is_known = true;
        let holder = first.try_acquire().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(release_after);
                holder.release().unwrap();
            });
            match second.acquire_timeout(timeout) {
                Ok(permit) => {
                    used += 1;
                    timeout = timeout * 9 / 10;
                    permit.release().unwrap();
                }
                Err(AcquireError::TimedOut(_)) => {
                    timed_out += 1;
                    timeout = timeout * 10 / 9;
                }
                // Whoever gets no processor for 40 ms is told so, and what became of its last call is given back later.
                Err(AcquireError::Unknown(_)) => (is_known, unknown) = (false, unknown + 1),
                Err(other) => panic!("{other}"),
            }
        });
        let state = eventually("it is free again", || {
            let state = raw.inspect();
            (state.in_use == 0 && (is_known || state.waiter_count == 0)).then_some(state)
        });
        assert_eq!(state.waiter_count, 0, "round {round}");
    }
    assert!(used > 0 && timed_out > 0, "{used} used, {timed_out} timed out: nothing crossed");
    assert!(unknown <= 10, "of {unknown} in 200 it is not known");
}

#[test]
fn a_grant_of_an_own_id_is_used_though_its_message_comes_after_the_timeout() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let semaphore = gate.semaphore("raw", 1).lease(MINUTE).id("me");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_timeout(Duration::from_secs(2)));
        await_waiters(&mut raw, 1);
        eventually("both answers are there, to stand and not to stand in line", || {
            (proxy.replies_to_scripts() == 2).then_some(())
        });
        proxy.delay_replies([Duration::from_millis(2_300)]);
        raw.assert_released("holder");
        let permit = waiting.join().unwrap().unwrap();
        assert!(raw.holds("me"));
        permit.release().unwrap();
    });
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn a_lost_subscription_heals_and_nobody_hangs() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1);
    for _ in 0..10 {
        let holder = semaphore.acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let start = Instant::now();
                drop(semaphore.acquire_timeout(MINUTE).unwrap());
                start.elapsed()
            });
            await_waiters(&mut raw, 1);
            support::kill_connections(&mut raw.con, "pubsub");
            holder.release().unwrap();
            let waited = waiter.join().unwrap();
            assert!(waited < Duration::from_secs(5), "woken only by its own re-check, after {waited:?}");
        });
    }
}

#[test]
fn subscribers_and_callers_are_killed_in_a_loop() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 2);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 2).lease(Duration::from_secs(2)).auto_renew();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let mut kills = 0;
            let mut con = server.connection();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
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
                        // Two connections cut in a row leave the outcome unknown; that is told, and nothing is held.
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
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(killer.join().unwrap() > 20, "nothing was killed");
    });
    raw.con = server.connection();
    eventually("everything came back", || {
        let state = raw.inspect();
        (state.in_use == 0 && state.waiter_count == 0).then_some(())
    });
}

#[test]
fn three_thousand_waiters_vanish_and_the_next_one_is_served_within_its_recheck() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    for n in 0..3_000 {
        raw.queue(Ask { wait_ms: 600_000, inbox: "nobody:listens", ..raw.ask(&format!("w{n}")) });
    }
    let semaphore = server.gate().semaphore("raw", 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).unwrap().release().unwrap());
        await_waiters(&mut raw, 3_001);
        let start = Instant::now();
        raw.assert_released("holder");
        waiter.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    });
}

#[test]
fn a_wait_outlives_a_restart_of_the_server() {
    let mut server = own!(Server::private(&[]));
    let semaphore = server.gate().semaphore("raw", 1);
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).unwrap().release());
        await_waiters(&mut raw, 1);
        server.kill();
        server.start_again();
        // The server forgot everything, the holder too.
        assert!(waiter.join().unwrap().is_ok());
    });
}

#[test]
fn who_waits_keeps_its_place_over_a_restart_of_the_server() {
    let mut server = own!(Server::private_tcp(&[]));
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    let proxies = [Proxy::new(&server), Proxy::new(&server)];
    let waiting: Vec<_> = (1..)
        .zip(&proxies)
        .map(|(place, proxy)| {
            let gate = Gate::builder(&proxy.url).prefix(&server.prefix);
            let gate = gate.outage(MINUTE).open().unwrap();
            let semaphore = gate.semaphore("raw", 1);
            let waiter = std::thread::spawn(move || drop(semaphore.acquire_timeout(MINUTE).unwrap()));
            await_waiters(&mut raw, place);
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
    server.start_again(); // it forgot everything
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    // The second finds the server before the first does.
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

/// A permit of another client that nobody renews, for longer than a test takes.
fn held(raw: &Raw) -> Ask<'static> {
    Ask { lease_ms: LONG_MS, ..raw.ask("holder") }
}

/// A gate behind a proxy that gives a call up early, with one connection for all calls.
fn impatient(proxy: &Proxy, server: &Server) -> Gate {
    Gate::builder(&proxy.url)
        .prefix(&server.prefix)
        .read_timeout(Duration::from_millis(300))
        .connections(1)
        .open()
        .unwrap()
}

/// Waits until something was granted after `fence`, and all of it given back.
fn await_return(raw: &mut Raw, fence: u64) {
    eventually("it is granted and given back", || {
        let state = raw.inspect();
        let is_granted = state.last_fence > fence;
        (is_granted && state.in_use == 0 && state.waiter_count == 0).then_some(())
    });
}

#[test]
fn a_grant_that_comes_for_a_wait_that_was_given_up_is_released() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    let gate = impatient(&proxy, &server);
    let semaphore = gate.semaphore("raw", 1).lease(LONG);
    // The client listens from here on.
    let refused = semaphore.acquire_timeout(Duration::from_millis(200));
    assert!(matches!(refused, Err(AcquireError::TimedOut(_))));
    // The first call is overtaken, its repetition is carried out without a reply, and both are released.
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
fn a_call_of_a_wait_that_comes_after_its_end_is_granted_to_nobody() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    // Behind somebody the client asks again every second.
    raw.queue(Ask { wait_ms: LONG_MS, inbox: "nobody", ..raw.ask("first") });
    let stop = Cancel::new();
    let gate = impatient(&proxy, &server);
    let semaphore = gate.semaphore("raw", 1).lease(LONG).cancelled_by(&stop);
    let waiting = std::thread::spawn(move || semaphore.acquire());
    await_waiters(&mut raw, 2);
    proxy.hold();
    eventually("it asks again", || proxy.has_any_back().then_some(()));
    stop.cancel();
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(AcquireError::Cancelled(_))), "{ended:?}");
    raw.release("first");
    raw.assert_released("holder");
    await_waiters(&mut raw, 0);
    let before = raw.inspect().last_fence;
    proxy.let_go();
    await_return(&mut raw, before);
}

#[test]
fn a_server_that_stays_away_is_told_as_such() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).outage(Duration::from_millis(300)).open().unwrap();
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
fn a_wait_is_cancelled_from_another_thread() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let stop = Cancel::new();
    let semaphore = server.gate().semaphore("raw", 1).cancelled_by(&stop);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| scope.spawn(|| semaphore.acquire())).collect();
        await_waiters(&mut raw, 5);
        stop.cancel();
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(AcquireError::Cancelled(_))));
        }
    });
    assert_eq!(raw.inspect().waiter_count, 0);
    assert!(stop.is_cancelled());
    assert!(matches!(semaphore.acquire(), Err(AcquireError::Cancelled(_))));
}

#[test]
fn a_wait_that_was_cancelled_before_it_began_is_never_granted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("before"));
    raw.assert_released("before");
    let mut fence = raw.inspect().last_fence;
    let stop = Cancel::new();
    stop.cancel();
    // All is free. The first wait of a gate asks in another way than those after it.
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1).cancelled_by(&stop);
    let latch = gate.latch("open", 1).cancelled_by(&stop);
    latch.count_down().unwrap();
    for _ in 0..2 {
        assert!(matches!(latch.wait(), Err(WaitError::Cancelled(_))));
        let refused = [
            semaphore.acquire().map(drop),
            semaphore.acquire_timeout(SOON).map(drop),
            gate.mutex("free").cancelled_by(&stop).lock().map(drop),
        ];
        for result in refused {
            assert!(matches!(result, Err(AcquireError::Cancelled(_))));
        }
        let both = gate.mutexes(["a", "b"]).cancelled_by(&stop);
        assert!(matches!(both.lock_all(SOON), Err(LockAllError::Cancelled(_))));
        assert_eq!(raw.inspect().last_fence, fence, "it was granted");
        // From here on the gate has an inbox.
        raw.grant(raw.ask("holder"));
        let waited = gate.semaphore("raw", 1).acquire_timeout(Duration::from_millis(20));
        assert!(matches!(waited, Err(AcquireError::TimedOut(_))));
        raw.assert_released("holder");
        fence = raw.inspect().last_fence;
    }
}

#[test]
fn a_wait_ends_at_the_deadline_of_its_handle() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let deadline = Instant::now() + Duration::from_millis(300);
    let request = Cancel::at(deadline);
    let semaphore = server.gate().semaphore("raw", 1).cancelled_by(&request);
    assert!(!request.is_cancelled());
    std::thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..5).map(|_| scope.spawn(|| (semaphore.acquire_timeout(SOON), Instant::now()))).collect();
        for waiter in waiters {
            let (result, ended) = waiter.join().unwrap();
            assert!(matches!(result, Err(AcquireError::Cancelled(_))));
            assert!(ended >= deadline, "cancelled early");
            // Without a message it would ask again after 5 s.
            assert!(ended < deadline + Duration::from_secs(3), "cancelled late");
        }
    });
    assert_eq!(raw.inspect().waiter_count, 0, "a place is left behind");
    assert!(request.is_cancelled());
    let start = Instant::now();
    assert!(matches!(semaphore.acquire_timeout(SOON), Err(AcquireError::Cancelled(_))));
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn all_waits_of_a_request_have_one_deadline() {
    let server = Server::any();
    let gate = server.gate();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let start = Instant::now();
    let request = Cancel::after(Duration::from_millis(300));
    let free = gate.mutex("free").cancelled_by(&request);
    let guard = free.lock().unwrap();
    let locks = gate.mutexes(["free", "other"]).cancelled_by(&request);
    let error = locks.lock_all(SOON).unwrap_err();
    assert!(matches!(error, LockAllError::Cancelled(_)), "{error:?}");
    let latch = gate.latch("closed", 1).cancelled_by(&request);
    let error = latch.wait_timeout(SOON).unwrap_err();
    assert!(matches!(error, WaitError::Cancelled(_)), "{error:?}");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(300) && waited < Duration::from_secs(3));
    assert!(!guard.is_lost(), "what was granted in time stays");
    guard.unlock().unwrap();
}

#[test]
fn a_latch_is_not_waited_for_beyond_the_deadline_of_a_handle() {
    let server = Server::any();
    let start = Instant::now();
    let request = Cancel::after(Duration::from_millis(200));
    let latch = server.gate().latch("closed", 1).cancelled_by(&request);
    let error = latch.wait_timeout(SOON).unwrap_err();
    assert!(matches!(error, WaitError::Cancelled(_)), "{error:?}");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(200) && waited < Duration::from_secs(3));
}

#[test]
fn a_handle_with_a_deadline_can_be_cancelled_before_it() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let request = Cancel::after(MINUTE);
    let semaphore = server.gate().semaphore("raw", 1).cancelled_by(&request);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(SOON));
        await_waiters(&mut raw, 1);
        assert!(!request.is_cancelled());
        request.cancel();
        let result = waiter.join().unwrap();
        assert!(matches!(result, Err(AcquireError::Cancelled(_))));
    });
    assert!(Cancel::after(Duration::ZERO).is_cancelled());
    assert!(!Cancel::after(Duration::MAX).is_cancelled());
}

#[test]
fn two_semaphores_may_be_waited_for_with_one_own_id() {
    let server = Server::any();
    let mut first = Raw::named(&server, "first", 1);
    let mut second = Raw::named(&server, "second", 1);
    first.grant(first.ask("holder"));
    second.grant(second.ask("holder"));
    let gate = server.gate();
    let wait = |name: &str| {
        let semaphore: Semaphore = gate.semaphore(name, 1).id("me");
        move || semaphore.acquire_timeout(MINUTE).map(|permit| permit.fence())
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(wait("first"));
        let two = scope.spawn(wait("second"));
        await_waiters(&mut first, 1);
        await_waiters(&mut second, 1);
        assert!(matches!(wait("first")(), Err(AcquireError::Invalid(_))), "the same id waits there already");
        second.assert_released("holder");
        assert!(two.join().unwrap().is_ok());
        assert!(!one.is_finished());
        first.assert_released("holder");
        assert!(one.join().unwrap().is_ok());
    });
}

/// A process that acquires, says so, and holds until it is told to release or is killed.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(server: &Server, label: &str) -> Worker {
        let mut child = process("worker", &[&server.url, &server.prefix, label]).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Worker { child, input, output }
    }

    fn await_line(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim() != word {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the worker ended before it said {word}");
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What the process of a worker does.
pub fn work(arguments: &[String]) {
    let [url, prefix, label] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).label(label).open().unwrap();
    let semaphore = gate.semaphore("raw", 1).lease(Duration::from_secs(2));
    println!("\nstarted");
    let permit = semaphore.acquire().unwrap();
    println!("inside");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
    permit.release().unwrap();
}

#[test]
fn processes_are_killed_while_they_wait_and_while_they_hold() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut holder = Worker::start(&server, "holder");
    holder.await_line("inside");
    let waiter = Worker::start(&server, "waiter");
    await_waiters(&mut raw, 1);
    let mut next = Worker::start(&server, "next");
    await_waiters(&mut raw, 2);
    let state = raw.inspect();
    assert!(state.waiters[0].id.starts_with("waiter/"));
    let lease_end = state.holders[0].expires_at.unwrap();
    waiter.kill();
    holder.kill();
    // The killed waiter is first in line, and stops nobody; the killed holder does until its lease ends.
    next.await_line("inside");
    let state = raw.inspect();
    assert!(state.holders[0].id.starts_with("next/"));
    let late = state.holders[0].fence / 1_000 - lease_end;
    assert!(late < 1_000, "{late} ms after the end of the lease");
    next.input.write_all(b"leave\n").unwrap();
    assert!(next.child.wait().unwrap().success());
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn a_strict_wait_takes_nothing_under_a_limit_that_was_changed_meanwhile() {
    let server = Server::any();
    let gate = server.gate();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let strict = gate.semaphore("raw", 1).strict();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| strict.acquire_timeout(MINUTE));
        await_waiters(&mut raw, 1);
        raw.resize(2, None);
        let outcome = waiter.join().unwrap();
        assert!(matches!(outcome, Err(AcquireError::LimitMismatch(_))), "{outcome:?}");
    });
    assert_eq!(raw.in_use(), 1);
}

#[test]
fn a_script_that_keeps_the_server_busy_is_waited_out() {
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
        // A second one asks, and hears of it.
        let second = semaphore.acquire_timeout(Duration::from_millis(100));
        let Err(AcquireError::Failed(failure) | AcquireError::Unknown(failure)) = second else { panic!("{second:?}") };
        assert_eq!(failure.kind(), luagate::errors::FailureKind::NotReady);
        assert!(!waiter.is_finished());
        redis::cmd("SCRIPT").arg("KILL").exec(&mut con).unwrap();
        eventually("it is free again", || redis::cmd("PING").exec(&mut con).ok());
        raw.assert_released("holder");
        assert!(waiter.join().unwrap().is_ok());
    });
}

#[test]
fn revoking_a_place_in_line_ends_the_wait_at_once_and_holds_up_nobody() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 2).lease(MINUTE);
    let holder = semaphore.try_acquire().unwrap();
    std::thread::scope(|scope| {
        // It wants both permits, so those behind it wait although one is free.
        let waiting = scope.spawn(|| {
            let both = semaphore.clone().id("wants-both");
            let outcome = both.acquire_many_timeout(2, MINUTE);
            (outcome, Instant::now())
        });
        await_waiters(&mut raw, 1);
        let behind = scope.spawn(|| semaphore.acquire_timeout(MINUTE));
        await_waiters(&mut raw, 2);
        let revoked = Instant::now();
        assert_eq!(semaphore.revoke("wants-both").unwrap(), Revoked::Waited);
        drop(behind.join().unwrap().expect("one was free all the time"));
        let (outcome, ended) = waiting.join().unwrap();
        let Err(AcquireError::Revoked(place)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(place.id, "wants-both");
        assert!(ended.duration_since(revoked) < Duration::from_secs(2));
    });
    assert_eq!(raw.inspect().waiter_count, 0);
    holder.release().unwrap();
}
