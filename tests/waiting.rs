//! Promise: who waits in line is served as soon as it can be, hears of it however badly things go, and leaves nothing
//! behind when it gives up.

mod support;

use luagate::errors::{AcquireError, LockAllError, WaitError};
use luagate::scripts::semaphore::Ask;
use luagate::{Cancel, Gate, Semaphore};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};
use support::raw::Raw;
use support::{SOON, Server, eventually, job, process};

const MINUTE: Duration = Duration::from_secs(60);

/// Waits until so many stand in line.
fn await_waiters(raw: &mut Raw, count: u64) {
    eventually("they stand in line", || {
        (raw.inspect().waiter_count == count).then_some(())
    });
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
        let waiters: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| drop(semaphore.acquire_timeout(MINUTE).unwrap())))
            .collect();
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
    let list: String = redis::cmd("CLIENT")
        .arg("LIST")
        .arg("TYPE")
        .arg("pubsub")
        .query(&mut raw.con)
        .unwrap();
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
            let end = raw
                .grant(Ask {
                    lease_ms: 200,
                    ..raw.ask(&crashed)
                })
                .expires_at
                .unwrap();
            let permit = semaphore.acquire_timeout(MINUTE).unwrap();
            // A fence is the server's time of the grant, in microseconds.
            let late = permit
                .fence()
                .checked_sub(end * 1_000)
                .expect("granted before the lease ended");
            permit.release().unwrap();
            Duration::from_micros(late)
        })
        .collect();
    assert!(
        median(late.clone()) <= Duration::from_millis(50),
        "{late:?}"
    );
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
            let Err(AcquireError::TimedOut(denied)) = semaphore.acquire_timeout(timeout) else {
                panic!()
            };
            assert_eq!((denied.in_use, denied.limit), (1, 1));
            assert_eq!(raw.inspect().waiter_count, 0);
            start
                .elapsed()
                .checked_sub(timeout)
                .expect("it gave up too early")
        })
        .collect();
    assert!(
        median(over.clone()) <= Duration::from_millis(50),
        "{over:?}"
    );
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
    for round in 0..200 {
        let mut is_known = true;
        let holder = first.try_acquire().unwrap();
        let timeout = Duration::from_millis(5);
        // The release comes a little before, at, or a little after the timeout.
        let release_after = Duration::from_micros(4_000 + round % 20 * 100);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(release_after);
                holder.release().unwrap();
            });
            match second.acquire_timeout(timeout) {
                Ok(permit) => {
                    used += 1;
                    permit.release().unwrap();
                }
                Err(AcquireError::TimedOut(_)) => timed_out += 1,
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
    assert!(
        used > 0 && timed_out > 0,
        "{used} used, {timed_out} timed out: nothing crossed"
    );
    assert!(unknown <= 10, "of {unknown} in 200 it is not known");
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
            assert!(
                waited < Duration::from_secs(5),
                "woken only by its own re-check, after {waited:?}"
            );
        });
    }
}

#[test]
fn subscribers_and_callers_are_killed_in_a_loop() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 2);
    let gate = server.gate();
    let semaphore = gate
        .semaphore("raw", 2)
        .lease(Duration::from_secs(2))
        .auto_renew();
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
        raw.queue(Ask {
            wait_ms: 600_000,
            inbox: "nobody:listens",
            ..raw.ask(&format!("w{n}"))
        });
    }
    let semaphore = server.gate().semaphore("raw", 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            semaphore
                .acquire_timeout(MINUTE)
                .unwrap()
                .release()
                .unwrap()
        });
        await_waiters(&mut raw, 3_001);
        let start = Instant::now();
        raw.assert_released("holder");
        waiter.join().unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(6),
            "{:?}",
            start.elapsed()
        );
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
fn a_server_that_stays_away_is_told_as_such() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url)
        .prefix(&server.prefix)
        .outage(Duration::from_millis(300))
        .open()
        .unwrap();
    let semaphore = gate.semaphore("raw", 1);
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask {
        lease_ms: 600,
        ..raw.ask("holder")
    });
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire());
        await_waiters(&mut raw, 1);
        server.kill();
        let start = Instant::now();
        let error = waiter.join().unwrap().unwrap_err();
        assert!(
            matches!(error, AcquireError::Failed(_) | AcquireError::Unknown(_)),
            "{error}"
        );
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
        let waiters: Vec<_> = (0..5)
            .map(|_| scope.spawn(|| semaphore.acquire()))
            .collect();
        await_waiters(&mut raw, 5);
        stop.cancel();
        for waiter in waiters {
            assert!(matches!(
                waiter.join().unwrap(),
                Err(AcquireError::Cancelled(_))
            ));
        }
    });
    assert_eq!(raw.inspect().waiter_count, 0);
    assert!(stop.is_cancelled());
    assert!(matches!(
        semaphore.acquire(),
        Err(AcquireError::Cancelled(_))
    ));
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
        let waiters: Vec<_> = (0..5)
            .map(|_| scope.spawn(|| (semaphore.acquire_timeout(SOON), Instant::now())))
            .collect();
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
    assert!(matches!(
        semaphore.acquire_timeout(SOON),
        Err(AcquireError::Cancelled(_))
    ));
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
        move || {
            semaphore
                .acquire_timeout(MINUTE)
                .map(|permit| permit.fence())
        }
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(wait("first"));
        let two = scope.spawn(wait("second"));
        await_waiters(&mut first, 1);
        await_waiters(&mut second, 1);
        assert!(
            matches!(wait("first")(), Err(AcquireError::Invalid(_))),
            "the same id waits there already"
        );
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
        let mut child = process("worker", &[&server.url, &server.prefix, label])
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Worker {
            child,
            input,
            output,
        }
    }

    fn await_line(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim() != word {
            line.clear();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the worker ended before it said {word}"
            );
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn process_of_a_test() {
    let Some((_, arguments)) = job() else { return };
    let [url, prefix, label] = arguments.as_slice() else {
        panic!()
    };
    let gate = Gate::builder(url)
        .prefix(prefix)
        .label(label)
        .open()
        .unwrap();
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
        assert!(
            matches!(outcome, Err(AcquireError::LimitMismatch(_))),
            "{outcome:?}"
        );
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
            redis::cmd("EVAL")
                .arg("while true do end")
                .arg(0)
                .exec(&mut con)
        });
        let mut con = server.connection();
        eventually("the server is busy", || {
            let ping = redis::cmd("PING").exec(&mut con);
            ping.is_err_and(|error| error.code() == Some("BUSY"))
                .then_some(())
        });
        // A second one asks, and hears of it.
        let second = semaphore.acquire_timeout(Duration::from_millis(100));
        let Err(AcquireError::Failed(failure) | AcquireError::Unknown(failure)) = second else {
            panic!("{second:?}")
        };
        assert_eq!(failure.kind(), luagate::errors::FailureKind::NotReady);
        assert!(!waiter.is_finished());
        redis::cmd("SCRIPT").arg("KILL").exec(&mut con).unwrap();
        eventually("it is free again", || {
            redis::cmd("PING").exec(&mut con).ok()
        });
        raw.assert_released("holder");
        assert!(waiter.join().unwrap().is_ok());
    });
}
