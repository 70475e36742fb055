//! Promise: with the feature `memory` a program's unit tests need no server, and time passes when the test says so.

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::{AcquireError, FailureKind, RefreshError, TryAcquireError, WaitError};
use luagate::memory::Memory;
use luagate::scripts::HOLDS;
use luagate::{Cancel, Gate, Permit, Released, Semaphore};
use redis::Commands;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// How long a condition may take that should hold at once.
const SOON: Duration = Duration::from_secs(10);

#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn memory() -> (Gate, Memory) {
    Gate::in_memory().unwrap()
}

/// Waits in line in a thread of its own, and is in line when this returns.
fn in_line<T: Send + 'static>(
    semaphore: &Semaphore,
    acquire: impl FnOnce(&Semaphore) -> T + Send + 'static,
) -> JoinHandle<T> {
    let before = semaphore.inspect().unwrap().waiters.len();
    let waiting = semaphore.clone();
    let thread = std::thread::spawn(move || acquire(&waiting));
    eventually("it stands in line", || semaphore.inspect().unwrap().waiters.len() > before);
    thread
}

/// Whether what a thread waits for is over; it joins only then.
#[track_caller]
fn finished<T>(thread: JoinHandle<T>) -> T {
    eventually("the thread is done", || thread.is_finished());
    thread.join().unwrap()
}

#[test]
fn at_once_or_denied() {
    let (gate, _memory) = memory();
    let seats = gate.semaphore("seats", 2).lease(MINUTE);
    let one = seats.try_acquire().unwrap();
    let two = seats.try_acquire().unwrap();
    assert!(two.fence() > one.fence());
    match seats.try_acquire() {
        Err(TryAcquireError::Denied(denied)) => {
            assert_eq!((denied.in_use, denied.limit, denied.waiting), (2, 2, 0));
            let left = denied.next_expiry.unwrap();
            assert!(left > MINUTE - SOON && left <= MINUTE, "{left:?}");
        }
        other => panic!("a third seat: {other:?}"),
    }
    assert_eq!(one.release().unwrap(), Released::Released);
    assert_eq!(seats.available_permits().unwrap(), 1);
}

#[test]
fn a_lease_ends_when_the_clock_says_so() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1).lease(HOUR);
    let first = desk.try_acquire().unwrap();
    memory.advance(HOUR - MINUTE);
    let left = first.remaining().unwrap();
    assert!(left > MINUTE - SOON && left < MINUTE, "{left:?}");
    match desk.try_acquire() {
        Err(TryAcquireError::Denied(denied)) => {
            let left = denied.next_expiry.unwrap();
            assert!(left > MINUTE - SOON && left <= MINUTE, "{left:?}");
        }
        other => panic!("the desk twice: {other:?}"),
    }
    memory.advance(MINUTE);
    assert!(first.is_lost());
    assert!(matches!(first.refresh(), Err(RefreshError::Lost(_))));
    let second = desk.try_acquire().unwrap();
    assert!(second.fence() > first.fence());
    assert_eq!(first.release().unwrap(), Released::Gone);
    assert!(!second.is_lost());
}

#[test]
fn the_clock_runs_along_with_the_machine_s() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    let _held = desk.try_acquire().unwrap();
    let (before, started) = (memory.now(), Instant::now());
    let result = desk.acquire_timeout(Duration::from_millis(50));
    assert!(matches!(result, Err(AcquireError::TimedOut(_))));
    assert!(started.elapsed() >= Duration::from_millis(50));
    let passed = memory.now().duration_since(before).unwrap();
    assert!(passed >= Duration::from_millis(50), "{passed:?}");
}

#[test]
fn a_waiter_is_served_when_the_lease_in_front_ends() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1).lease(HOUR);
    let first = desk.try_acquire().unwrap();
    let second = in_line(&desk, Semaphore::acquire);
    memory.advance(HOUR - MINUTE);
    assert!(!second.is_finished());
    memory.advance(MINUTE);
    let second = finished(second).unwrap();
    assert!(first.is_lost());
    let left = second.remaining().unwrap();
    assert!(left > HOUR - SOON, "{left:?}"); // from when it was served, not from when it began to wait
}

#[test]
fn waiters_are_served_in_their_order_as_leases_end() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1).lease(MINUTE);
    let _first = desk.try_acquire().unwrap();
    let (sender, served) = mpsc::channel();
    let waiters: Vec<_> = (0..4)
        .map(|number| {
            let sender = sender.clone();
            in_line(&desk, move |desk| {
                // Kept until its lease has ended: dropping it would let the next one in.
                sender.send((number, desk.acquire().unwrap())).unwrap();
            })
        })
        .collect();
    let mut kept: Vec<Permit> = Vec::new();
    for expected in 0..4 {
        assert!(served.try_recv().is_err());
        memory.advance(MINUTE);
        let (number, permit) = served.recv_timeout(SOON).unwrap();
        assert_eq!(number, expected);
        assert!(!permit.is_lost());
        kept.push(permit);
    }
    for waiter in waiters {
        finished(waiter);
    }
}

#[test]
fn a_wait_times_out_when_the_clock_says_so() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    let held = desk.try_acquire().unwrap();
    let waiter = in_line(&desk, |desk| desk.acquire_timeout(HOUR).map(drop));
    memory.advance(HOUR - MINUTE);
    assert!(!waiter.is_finished());
    assert_eq!(desk.inspect().unwrap().waiters.len(), 1); // it asked again in time, every few seconds
    memory.advance(MINUTE);
    match finished(waiter) {
        Err(AcquireError::TimedOut(denied)) => assert_eq!((denied.in_use, denied.limit), (1, 1)),
        other => panic!("{other:?}"),
    }
    assert!(desk.inspect().unwrap().waiters.is_empty());
    assert!(!held.is_lost());
}

#[test]
fn a_renewed_permit_outlives_hours() {
    let (gate, memory) = memory();
    let lost = Arc::new(AtomicU32::new(0));
    let told = lost.clone();
    let mutex = gate.mutex("nightly").on_lost(move |_| {
        told.fetch_add(1, Ordering::SeqCst);
    });
    let held = mutex.lock().unwrap();
    let short = gate.semaphore("short", 1).lease(5 * SECOND).auto_renew();
    let short = short.try_acquire().unwrap();
    memory.advance(HOUR);
    assert!(!held.is_lost() && !short.is_lost());
    let other = memory.gate().unwrap();
    assert!(other.mutex("nightly").try_lock().is_err());
    assert!(other.semaphore("short", 1).try_acquire().is_err());
    assert_eq!(lost.load(Ordering::SeqCst), 0);
    assert_eq!(held.unlock().unwrap(), Released::Released);
    assert!(other.mutex("nightly").try_lock().is_ok());
}

#[test]
fn each_of_many_permits_is_renewed_though_all_are_due_at_once() {
    let (gate, memory) = memory();
    let market = gate.semaphore("market", 250).lease(HOUR).auto_renew();
    let permits: Vec<Permit> = (0..250).map(|_| market.try_acquire().unwrap()).collect();
    for _ in 0..4 {
        // All are overdue when it wakes up: they go in packets as full as can be.
        memory.suspend(HOUR / 2);
        for (place, permit) in permits.iter().enumerate() {
            let left = permit.remaining().unwrap();
            assert!(left > HOUR - MINUTE, "{place}: {left:?}");
        }
    }
    assert_eq!(market.inspect().unwrap().holder_count, 250);
    assert_eq!(gate.counters().renewed, 1_000);
}

#[test]
fn a_suspended_machine_loses_what_it_held_and_is_told() {
    let (gate, memory) = memory();
    let (sender, told) = mpsc::channel();
    let mutex = gate.mutex("nightly");
    let sleepy = mutex.clone().on_lost(move |lost| {
        std::thread::sleep(Duration::from_millis(50)); // it takes its time, and is waited for
        sender.send(lost.id.clone()).unwrap();
    });
    let held = sleepy.lock().unwrap();
    memory.suspend(MINUTE);
    assert!(held.is_lost());
    assert_eq!(told.try_recv().as_deref(), Ok(held.id()));
    let next = mutex.try_lock().unwrap();
    assert!(next.fence() > held.fence());
    assert_eq!(held.unlock().unwrap(), Released::Gone);
    assert!(!next.is_lost());
}

#[test]
fn a_lease_that_is_not_renewed_is_told_when_it_ends() {
    let (gate, memory) = memory();
    let told = Arc::new(AtomicU32::new(0));
    let count = told.clone();
    let desk = gate.semaphore("desk", 1).lease(MINUTE).on_lost(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let _held = desk.try_acquire().unwrap();
    memory.advance(MINUTE - SOON);
    assert_eq!(told.load(Ordering::SeqCst), 0);
    memory.advance(SOON);
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

#[test]
fn a_waiter_keeps_its_place_for_hours() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    let held = desk.try_acquire().unwrap();
    let first = in_line(&desk, Semaphore::acquire);
    memory.advance(HOUR);
    let other = memory.gate().unwrap().semaphore("desk", 1);
    let second = in_line(&other, Semaphore::acquire);
    memory.advance(MINUTE);
    held.release().unwrap();
    let first = finished(first).unwrap();
    assert!(!second.is_finished());
    memory.advance(MINUTE);
    assert!(!first.is_lost());
    first.release().unwrap();
    assert!(!finished(second).unwrap().is_lost());
}

#[test]
fn a_wait_is_cancelled() {
    let (gate, memory) = memory();
    let cancel = Cancel::new();
    let desk = gate.semaphore("desk", 1).cancelled_by(&cancel);
    let _held = desk.try_acquire().unwrap();
    let waiter = in_line(&desk, |desk| desk.acquire().map(drop));
    memory.advance(HOUR);
    cancel.cancel();
    assert!(matches!(finished(waiter), Err(AcquireError::Cancelled(_))));
}

#[test]
fn a_wait_ends_at_the_deadline_of_its_handle_when_the_clock_says_so() {
    let (gate, memory) = memory();
    memory.advance(HOUR); // a handle that is made later knows nothing of it
    let cancel = Cancel::after(MINUTE);
    let desk = gate.semaphore("desk", 1).cancelled_by(&cancel);
    let latch = gate.latch("closed", 1).cancelled_by(&cancel);
    let _held = desk.try_acquire().unwrap();
    let waiter = in_line(&desk, |desk| desk.acquire().map(drop));
    memory.advance(MINUTE - SOON);
    assert!(!cancel.is_cancelled() && !waiter.is_finished());
    memory.advance(SOON);
    assert!(matches!(finished(waiter), Err(AcquireError::Cancelled(_))));
    assert!(cancel.is_cancelled());
    assert!(desk.inspect().unwrap().waiters.is_empty());
    assert!(matches!(latch.wait_timeout(SOON), Err(WaitError::Cancelled(_))));
}

#[test]
fn locks_latches_and_names_work() {
    let (gate, memory) = memory();
    let all = gate.mutexes(["{trade}:sword", "{trade}:shield"]);
    let both = all.try_lock_all().unwrap();
    assert!(gate.mutex("{trade}:sword").try_lock().is_err());
    drop(both);
    drop(all.lock_all(SECOND).unwrap());

    let page = gate.rwlock("page").lease(MINUTE);
    let readers = (page.read().unwrap(), page.try_read().unwrap());
    assert!(page.try_write().is_err());
    drop(readers);
    let writer = page.write().unwrap();
    assert!(page.try_read().is_err());
    memory.advance(MINUTE);
    assert!(writer.is_lost());
    assert!(page.try_read().is_ok());

    let recent = Recent::new(&gate, "ann").keep(2);
    for name in ["Alice", "Bob", "alan"] {
        recent.add(name).unwrap();
    }
    let names = recent.matching("AL", 10).unwrap();
    assert_eq!(names, ["alan"]);
    let guild = Prefix::new(&gate, "guild");
    guild.add(["bob", "alice", "bert"]).unwrap();
    let names = guild.matching("b", 10).unwrap();
    assert_eq!(names, ["bert", "bob"]);
}

#[test]
fn a_latch_opens_or_its_wait_runs_out() {
    let (gate, memory) = memory();
    let done = gate.latch("import", 2);
    assert_eq!(done.count_down_as("part-1").unwrap(), 1);
    let patient = done.clone();
    let patient = std::thread::spawn(move || patient.wait());
    let hasty = done.clone();
    let hasty = std::thread::spawn(move || hasty.wait_timeout(HOUR));
    eventually("the hasty one gives up", || {
        memory.advance(MINUTE);
        hasty.is_finished()
    });
    assert!(matches!(hasty.join().unwrap(), Err(WaitError::TimedOut(closed)) if closed.left == 1));
    assert!(!patient.is_finished());
    assert_eq!(done.count_down_as("part-2").unwrap(), 0);
    finished(patient).unwrap();
}

#[test]
fn threads_of_several_gates_never_exceed_the_limit() {
    const LIMIT: u32 = 3;
    let (gate, memory) = memory();
    let gates = [gate, memory.gate().unwrap(), memory.gate().unwrap()];
    let inside = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    let start = Arc::new(Barrier::new(24));
    let threads: Vec<_> = (0..24)
        .map(|number| {
            let seats = gates[number % 3].semaphore("seats", LIMIT);
            let (inside, most, start) = (inside.clone(), most.clone(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                for _ in 0..10 {
                    let permit = seats.acquire().unwrap();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    permit.release().unwrap();
                }
            })
        })
        .collect();
    // Meanwhile hours pass, and nobody notices but the renewal.
    while threads.iter().any(|thread| !thread.is_finished()) {
        memory.advance(MINUTE);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), LIMIT);
}

#[test]
fn worlds_do_not_disturb_one_another() {
    let (gate, memory) = memory();
    let (other, _other_memory) = self::memory();
    let held = gate.semaphore("desk", 1).lease(MINUTE);
    let held = held.try_acquire().unwrap();
    let theirs = other.semaphore("desk", 1).lease(MINUTE);
    let theirs = theirs.try_acquire().unwrap();
    memory.suspend(HOUR);
    assert!(held.is_lost());
    assert!(!theirs.is_lost());
    theirs.refresh().unwrap();
}

#[test]
fn a_script_of_the_user_s_own_writes_while_its_permit_lives() {
    let (gate, memory) = memory();
    let mut con = memory.connection().unwrap();
    let write = redis::Script::new(&format!(
        "{HOLDS}
        if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 0 end
        redis.call('SET', KEYS[4], ARGV[3])
        return 1"
    ));
    let lock = gate.mutex("account").lease(MINUTE).lock().unwrap();
    let balance = format!("balance:{{{}}}", lock.keys().tag());
    let mut write = |text: &str| -> bool {
        let mut call = write.key(&lock.keys().names());
        let call = call.key(&balance).arg((lock.id(), lock.fence())).arg(text);
        call.invoke(&mut con).unwrap()
    };
    assert!(write("100"));
    memory.suspend(MINUTE);
    assert!(!write("200"));
    let text: String = con.get(&balance).unwrap();
    assert_eq!(text, "100");
}

#[test]
fn other_clients_find_a_redis() {
    let (gate, memory) = memory();
    let mut subscriber = memory.connection().unwrap();
    let mut subscriber = subscriber.as_pubsub();
    subscriber.subscribe(&["news", "sports"]).unwrap();
    let mut con = memory.connection().unwrap();
    let heard: u32 = con.publish("sports", "1:0").unwrap();
    assert_eq!(heard, 1);
    let message = subscriber.get_message().unwrap();
    assert_eq!(message.get_channel_name(), "sports");
    assert_eq!(message.get_payload::<String>().unwrap(), "1:0");
    subscriber.unsubscribe("sports").unwrap();
    let pong: redis::Value = subscriber.ping().unwrap();
    assert_ne!(pong, redis::Value::Nil);
    let heard: u32 = con.publish("sports", "2:0").unwrap();
    assert_eq!(heard, 0);
    // Another gate by the url, as in a process that the test starts.
    let desk = gate.semaphore("desk", 1);
    let held = desk.try_acquire().unwrap();
    let other = Gate::open(&memory.url()).unwrap();
    assert!(other.semaphore("desk", 1).try_acquire().is_err());
    held.release().unwrap();
    assert!(other.semaphore("desk", 1).try_acquire().is_ok());
}

#[test]
fn a_server_whose_memory_is_full() {
    let (gate, memory) = memory();
    let seats = gate.semaphore("seats", 2);
    let held = seats.try_acquire().unwrap();
    memory.with_server(|server| server.set_full(true));
    match seats.try_acquire() {
        Err(TryAcquireError::Failed(failure)) => {
            assert_eq!(failure.kind(), FailureKind::OutOfMemory);
        }
        other => panic!("{other:?}"),
    }
    held.refresh().unwrap();
    held.release().unwrap();
}

#[test]
fn a_server_whose_clock_is_set() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    let told = Arc::new(AtomicU32::new(0));
    let count = told.clone();
    let watched = desk.clone().on_lost(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let first = watched.try_acquire().unwrap();
    // Ahead: the lease is over there, which its holder learns when it is renewed.
    memory.set_server_clock(memory.now() + HOUR);
    let second = desk.try_acquire().unwrap();
    assert!(!first.is_lost());
    memory.advance(MINUTE);
    assert!(first.is_lost() && !second.is_lost());
    assert_eq!(told.load(Ordering::SeqCst), 1);
    // Back again: fences go on increasing.
    memory.set_server_clock(memory.now());
    second.refresh().unwrap();
    let fence = second.fence();
    second.release().unwrap();
    assert!(desk.try_acquire().unwrap().fence() > fence);
}

#[test]
fn it_ends_with_the_last_who_uses_it() {
    let (gate, memory) = memory();
    let address = memory.url();
    let address = address.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let port = address.rsplit(':').next().unwrap().to_owned();
    let mut foreign = memory.connection().unwrap();
    drop(memory);
    let desk = gate.semaphore("desk", 1);
    let held = desk.try_acquire().unwrap();
    let waiter = in_line(&desk, Semaphore::acquire);
    drop((gate, desk));
    held.release().unwrap();
    let held = finished(waiter).unwrap();
    assert!(TcpStream::connect(&address).is_ok());
    assert!(!cfg!(target_os = "linux") || threads_of(&port) > 1);
    held.release().unwrap();
    eventually("nobody listens", || TcpStream::connect(&address).is_err());
    eventually("its threads end", || threads_of(&port) == 0);
    assert!(redis::cmd("PING").exec(&mut foreign).is_err());
}

/// How many threads serve this port; each is named after it. Where the system does not tell, none.
fn threads_of(port: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    names.filter(|name| matches!(name, Ok(name) if name.trim_end() == format!("luagate:{port}"))).count()
}

#[test]
fn permits_that_are_taken_while_the_clock_moves_are_renewed() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    for _ in 0..20 {
        let held = desk.acquire().unwrap();
        let next = in_line(&desk, Semaphore::acquire);
        held.release().unwrap();
        memory.advance(10 * MINUTE);
        assert!(!finished(next).unwrap().is_lost());
    }
    let thread = std::thread::spawn(move || {
        let both = gate.mutexes(["{desk}:left", "{desk}:right"]);
        for _ in 0..300 {
            drop(desk.try_acquire().unwrap());
            let handed_on = desk.clone().lease(10_000 * HOUR).try_acquire().unwrap();
            let adopted = desk.adopt(&handed_on.into_id()).unwrap();
            let both = both.try_lock_all().unwrap();
            let one = gate.mutex("one").try_lock().unwrap();
            assert!(!adopted.is_lost() && !both.is_lost() && !one.is_lost());
        }
    });
    while !thread.is_finished() {
        memory.advance(2 * MINUTE);
    }
    thread.join().unwrap();
}

#[test]
fn a_callback_that_does_not_return_stops_nobody() {
    let (gate, memory) = memory();
    let (sender, block) = mpsc::channel::<()>();
    let block = std::sync::Mutex::new(block);
    let desk = gate.semaphore("desk", 1).lease(SECOND).on_lost(move |_| {
        let _ = block.lock().unwrap().recv();
    });
    let held = desk.try_acquire().unwrap();
    let renewed = gate.mutex("renewed").lock().unwrap();
    let started = Instant::now();
    memory.advance(10 * MINUTE);
    assert!(started.elapsed() < MINUTE, "{:?}", started.elapsed());
    assert!(held.is_lost());
    assert!(desk.try_acquire().is_ok());
    drop((sender, renewed));
}

#[test]
fn the_clock_goes_as_far_as_it_can_and_no_farther() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1).lease(HOUR);
    let before = desk.try_acquire().unwrap();
    memory.suspend(Duration::MAX);
    memory.advance(Duration::MAX);
    assert!(before.is_lost());
    let after = desk.try_acquire().unwrap();
    assert!(after.fence() > before.fence() && !after.is_lost());
    after.refresh().unwrap();
    let result = desk.acquire_timeout(Duration::from_millis(50));
    assert!(matches!(result, Err(AcquireError::TimedOut(_))), "{result:?}");
}

#[test]
fn a_test_sees_what_the_server_keeps() {
    let (gate, memory) = memory();
    let mut con = memory.connection().unwrap();
    let held = gate.semaphore("desk", 1).lease(MINUTE).try_acquire().unwrap();
    let mut keys: Vec<String> = con.keys("luagate:*{desk}").unwrap();
    keys.sort();
    assert_eq!(keys, ["luagate:semaphore.holders:{desk}", "luagate:semaphore:{desk}"]);
    let scanned: Vec<String> = con.scan().unwrap().map(Result::unwrap).collect();
    assert_eq!(scanned.len(), 2);
    let exists: bool = con.exists(&keys[0]).unwrap();
    assert!(exists);
    let ttl: i64 = con.ttl(&keys[0]).unwrap();
    assert!((60..=120).contains(&ttl), "{ttl}");
    drop(held);
    memory.suspend(HOUR);
    let left: u64 = redis::cmd("DBSIZE").query(&mut con).unwrap();
    assert_eq!(left, 0); // nothing is left behind
    let _: () = con.set("mine", 1).unwrap();
    redis::cmd("FLUSHALL").exec(&mut con).unwrap();
    let mine: Option<i64> = con.get("mine").unwrap();
    assert_eq!(mine, None);
}

#[test]
fn each_renewal_is_counted_once() {
    let (gate, memory) = memory();
    let lease = gate.semaphore("counted", 2).lease(30 * SECOND);
    let permits = [lease.clone().auto_renew().acquire().unwrap(), lease.acquire().unwrap()];
    memory.advance(35 * SECOND);
    assert_eq!(gate.counters().renewed, 3, "a third of the lease has passed so often");
    assert!(!permits[0].is_lost() && permits[1].is_lost());
    assert_eq!(gate.counters().lost, 1);
    memory.suspend(HOUR);
    assert!(permits[0].is_lost());
    let counters = gate.counters();
    assert_eq!((counters.lost, counters.renewed), (2, 3));
}

#[test]
fn names_fit_patterns() {
    let (_, memory) = memory();
    let mut con = memory.connection().unwrap();
    for (pattern, name, expected) in [
        ("*", "", true),
        ("a*", "abc", true),
        ("a*c", "abcd", false),
        ("a*c*", "abcd", true),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        (r"a\*", "a*", true),
        (r"a\*", "ab", false),
        ("abc", "ab", false),
    ] {
        let () = con.set(name, "value").unwrap();
        let found: Vec<String> = con.keys(pattern).unwrap();
        assert_eq!(found == [name], expected, "{pattern} {name}");
        let () = con.del(name).unwrap();
    }
}
