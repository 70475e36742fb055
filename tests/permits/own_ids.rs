//! Promise: an application's own id can be used for one call after another, whatever stalls in between. A
//! call that reaches the server late never affects the grant of a later call with the same id.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{Server, command_counts, eventually, within};
use luagate::scripts::semaphore::Ask;

use luagate::errors::{AcquireError, PermitError, TryAcquireError};
use luagate::{Cancel, Error, Gate, Lease, Mutex, Permit, Released};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// A gate with this read timeout.
fn gate(url: &str, server: &Server, read_timeout: Duration) -> Gate {
    let builder = Gate::builder(url).prefix(&server.prefix);
    builder.read_timeout(read_timeout).open().unwrap()
}

/// The mutex `job` of this gate, with the id `worker-1`.
fn job(gate: &Gate) -> Mutex {
    gate.mutex("job").with(|lock| lock.id("worker-1").lease(Lease::fixed(LONG)))
}

/// A server, a proxy to it, and a gate through the proxy that waits 300 ms for a reply.
fn behind_a_proxy() -> Option<(Server, Proxy, Gate)> {
    let server = Server::private_tcp(&[])?;
    let proxy = Proxy::new(&server);
    let gate = gate(&proxy.url, &server, Duration::from_millis(300));
    Some((server, proxy, gate))
}

/// Asserts that the mutex is granted to no other holder while a delayed release could still arrive.
#[track_caller]
fn assert_holds_alone(server: &Server, guard: &Permit) {
    let other = server.gate().mutex("job");
    let second = within(Duration::from_secs(2), || other.try_lock().ok());
    assert!(second.is_none(), "two holders: {guard} and {second:?}");
    assert!(!guard.is_lost());
    guard.refresh().expect("it is still held");
}

#[test]
fn an_id_dropped_during_a_stall_and_locked_again_holds_alone() {
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let job = job(&gate);
    let first = job.lock().unwrap();
    server.pause();
    drop(first);
    thread::scope(|scope| {
        let again = scope.spawn(|| {
            thread::sleep(Duration::from_secs(1));
            job.lock()
        });
        thread::sleep(Duration::from_millis(2_250));
        server.resume();
        let guard = again.join().unwrap().expect("the lock is granted after the stall");
        assert_holds_alone(&server, &guard);
    });
}

#[test]
fn an_id_used_again_after_an_unknown_outcome_holds_alone() {
    let mut server = own!(Server::private(&[]));
    let gate = gate(&server.url, &server, Duration::from_secs(1));
    let job = job(&gate);
    server.pause();
    let error = job.try_lock().unwrap_err();
    assert!(matches!(error, TryAcquireError::Unknown(_)), "{error}");
    thread::scope(|scope| {
        let again = scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            job.try_lock()
        });
        thread::sleep(Duration::from_millis(1_130));
        server.resume();
        let guard = match again.join().unwrap() {
            Ok(guard) => guard,
            Err(_) => eventually("the mutex is free again", || job.try_lock().ok()),
        };
        assert_holds_alone(&server, &guard);
    });
}

#[test]
fn a_late_release_does_not_affect_the_next_grant_of_its_id() {
    let (server, proxy, gate) = own!(behind_a_proxy());
    let job = job(&gate);
    let first = job.lock().unwrap();
    proxy.hold();
    drop(first); // its release is sent but does not arrive yet
    let next = eventually("the release is confirmed on another connection", || job.try_lock().ok());
    assert_late_calls_change_nothing(&server, &proxy, &next);
}

#[test]
fn a_late_unanswered_call_does_not_affect_the_next_grant_of_its_id() {
    let (server, proxy, gate) = own!(behind_a_proxy());
    let job = job(&gate);
    proxy.hold();
    let error = job.try_lock().unwrap_err();
    assert!(matches!(error, TryAcquireError::Unknown(_)), "{error}");
    let next = eventually("the background has released a possible grant", || job.try_lock().ok());
    assert_late_calls_change_nothing(&server, &proxy, &next);
}

#[test]
fn an_abandoned_place_does_not_affect_the_next_grant_of_its_id() {
    let (server, proxy, gate) = own!(behind_a_proxy());
    let other = server.gate().mutex("job").with(|lock| lock.lease(Lease::fixed(LONG)));
    let holder = other.try_lock().unwrap();
    let stop = Cancel::new();
    let waiting = job(&gate).with(|lock| lock.cancelled_by(&stop));
    let waiting = thread::spawn(move || waiting.lock());
    eventually("it waits", || (other.inspect().unwrap().waiter_count == 1).then_some(()));
    proxy.hold();
    stop.cancel();
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(AcquireError::Cancelled(_))), "{ended:?}");
    holder.release().unwrap();
    let next = eventually("the place is given up", || job(&gate).try_lock().ok());
    assert_late_calls_change_nothing(&server, &proxy, &next);
}

#[track_caller]
fn assert_late_calls_change_nothing(server: &Server, proxy: &Proxy, guard: &Permit) {
    let_late_calls_run(server, proxy);
    assert_holds_alone(server, guard);
}

/// Lets the delayed calls reach the server, and returns when one of their scripts has run.
fn let_late_calls_run(server: &Server, proxy: &Proxy) {
    let mut con = server.connection();
    let mut scripts = || {
        let counts = command_counts(&mut con);
        counts.get("evalsha").copied().unwrap_or(0)
    };
    let before = scripts();
    proxy.let_go();
    eventually("a delayed call has run", || (scripts() > before).then_some(()));
}

#[test]
fn a_late_refresh_does_not_shorten_the_lease_of_the_next_holder() {
    let (server, proxy, gate) = own!(behind_a_proxy());
    let mut raw = Raw::named(&server, "shared", 1);
    let semaphore = gate.semaphore("shared", 1).id("worker-1").lease(Lease::fixed(LONG));
    let former = semaphore.acquire().unwrap();
    former.refresh().unwrap(); // from here on the server has the script loaded
    proxy.hold();
    let error = former.refresh_for(Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, PermitError::Unknown(_)), "{error}");
    // The permit is revoked and the id given to another process.
    let elsewhere = server.gate().semaphore("shared", 1).lease(Lease::fixed(LONG));
    elsewhere.revoke("worker-1").unwrap();
    let next = elsewhere.id("worker-1").try_acquire().unwrap();
    let_late_calls_run(&server, &proxy);
    let state = raw.inspect();
    let left = state.holders[0].expires_at.unwrap() - state.now;
    assert!(left > 30_000, "{left} ms are left of {LONG:?}");
    next.release().unwrap();
}

#[test]
fn a_former_holder_of_an_id_neither_refreshes_nor_releases_its_successors_permit() {
    let server = Server::any();
    let mut raw = Raw::named(&server, "shared", 3);
    let semaphore = server.gate().semaphore("shared", 3).id("worker-1");
    let semaphore = semaphore.lease(Lease::fixed(LONG));
    let mut former = semaphore.acquire_many(3).unwrap();
    semaphore.revoke("worker-1").unwrap();
    let next = server.gate().semaphore("shared", 3).id("worker-1");
    let next = next.lease(Lease::fixed(LONG)).acquire_many(3).unwrap();
    let error = former.release_some(1).unwrap_err();
    assert!(matches!(error, PermitError::Lost(_)), "{error}");
    let error = former.refresh_for(Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, PermitError::Lost(_)), "{error}");
    assert_eq!(former.release().unwrap(), Released::Gone);
    let held = raw.inspect().holders.remove(0);
    assert_eq!((held.fence, held.permits), (next.fence(), 3));
    next.release().unwrap();
}

/// A refresh with a shorter lease is lost on its way. Its holder cannot know, so the permit ends for it. For
/// the server it is permanent.
#[test]
fn a_permanent_permit_that_its_holder_saw_end_is_released() {
    let (server, proxy, gate) = own!(behind_a_proxy());
    let mut raw = Raw::named(&server, "shared", 1);
    let semaphore = gate.semaphore("shared", 1).lease(Lease::PERMANENT);
    for semaphore in [semaphore.clone().id("worker-1"), semaphore] {
        let permit = semaphore.acquire().unwrap();
        proxy.go_silent();
        let error = permit.refresh_for(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, PermitError::Unknown(_)), "{error}");
        assert!(permit.is_lost());
        assert_eq!(raw.in_use(), 1);
        drop(permit);
        eventually("it is released", || (raw.in_use() == 0).then_some(()));
    }
}

#[test]
fn an_adopted_permit_stays_held_in_spite_of_a_pending_release_of_the_id() {
    let (server, proxy, gate) = own!(behind_a_proxy());
    let job = job(&gate);
    drop(job.lock().unwrap()); // its connection is the delayed one
    let first = job.lock().unwrap();
    proxy.hold();
    drop(first);
    // Either the release ran first, or it no longer arrives.
    let adopted = within(Duration::from_secs(5), || match job.adopt("worker-1") {
        Ok(guard) => Some(Some(guard)),
        Err(PermitError::Lost(_)) => Some(None),
        Err(_) => None,
    });
    proxy.let_go();
    if let Some(guard) = adopted.expect("a connection without delay gets a reply") {
        assert_holds_alone(&server, &guard);
    }
}

#[test]
fn an_own_id_can_be_used_again_as_soon_as_its_release_has_a_reply() {
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let job = job(&gate);
    let first = job.lock().unwrap();
    server.pause();
    drop(first);
    thread::scope(|scope| {
        // The call waits for the release, not for a pause between two retries.
        let again = scope.spawn(|| (job.try_lock().map(drop), Instant::now()));
        thread::sleep(Duration::from_millis(700));
        let resumed = Instant::now();
        server.resume();
        let (locked, at) = again.join().unwrap();
        locked.expect("the release ran first");
        assert!(at.duration_since(resumed) < Duration::from_secs(1));
    });
}

#[test]
fn a_waiter_with_an_own_id_gets_its_permit_although_the_server_stalls() {
    let mut server = own!(Server::private(&[]));
    let gate = gate(&server.url, &server, Duration::from_millis(500));
    let job = job(&gate);
    let lease = Duration::from_secs(2);
    let _ = server.gate().mutex("job").with(|lock| lock.lease(Lease::fixed(lease))).lock().unwrap().into_id();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| job.try_lock_for(LONG));
        eventually("it waits", || (job.inspect().unwrap().waiter_count == 1).then_some(()));
        // Meanwhile the lease ends, and the waiter gives up two calls. The server runs them when it
        // continues.
        server.pause();
        thread::sleep(lease + Duration::from_secs(2));
        server.resume();
        let guard = waiting.join().unwrap().expect("its place in line is granted");
        assert_holds_alone(&server, &guard);
        guard.release().unwrap();
    });
}

type Attempt<'a> = dyn Fn() -> Result<Permit, Error> + 'a;

/// The connection breaks after the server has granted. The call is sent again, and the reply is `held`.
#[test]
fn a_grant_whose_reply_was_lost_is_found_under_an_own_id() {
    let (_server, proxy, gate) = own!(behind_a_proxy());
    let job = job(&gate);
    let lock = gate.rwlock("document").with(|lock| lock.id("worker-1").lease(Lease::fixed(LONG)));
    // From here on the gate is subscribed, so a wait joins the line with its first call.
    let first = gate.mutex("job").lock().unwrap();
    job.try_lock_for(Duration::from_millis(50)).unwrap_err();
    first.release().unwrap();
    let attempts: [(_, &Attempt); 4] = [
        ("try_lock", &|| Ok(job.try_lock()?)),
        ("lock", &|| Ok(job.lock()?)),
        ("write", &|| Ok(lock.write()?)),
        ("lock_async", &|| Ok(futures_executor::block_on(job.lock_async())?)),
    ];
    for (what, attempt) in attempts {
        proxy.lose_reply_of_script();
        let permit = attempt().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(proxy.is_done());
        permit.refresh().expect("it is held");
        permit.release().unwrap();
    }
}

#[test]
fn an_own_id_that_holds_already_is_reported_although_a_reply_was_lost() {
    let (server, proxy, gate) = own!(behind_a_proxy());
    let former =
        server.gate().mutex("job").with(|lock| lock.id("worker-1").lease(Lease::fixed(LONG))).lock().unwrap();
    let fence = former.fence();
    let _ = former.into_id();
    let job = job(&gate);
    let attempts: [&Attempt; 2] = [&|| Ok(job.try_lock()?), &|| Ok(job.lock()?)];
    for attempt in attempts {
        thread::sleep(Duration::from_millis(20)); // the permit is older than the call
        proxy.lose_reply_of_script();
        let Err(Error::AlreadyHeld(held)) = attempt() else { panic!("it is another caller's") };
        assert!(proxy.is_done());
        assert_eq!(held.fence, fence);
    }
    assert!(!job.adopt("worker-1").unwrap().is_lost());
}

#[test]
fn an_own_id_holds_at_most_one_permit() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("identity", 5).id("account-17");
    let permit = semaphore.try_acquire().unwrap();
    let Err(TryAcquireError::AlreadyHeld(held)) = semaphore.try_acquire() else { panic!() };
    assert_eq!((held.id.as_str(), held.fence), ("account-17", permit.fence()));
    assert!(matches!(semaphore.acquire(), Err(AcquireError::AlreadyHeld(_))));
    assert_eq!(semaphore.available_permits().unwrap(), 4);
    permit.release().unwrap();
    drop(semaphore.try_acquire().unwrap());
}

#[test]
fn a_place_that_an_earlier_process_left_is_granted_although_the_head_start_differs() {
    let server = Server::any();
    let mut raw = Raw::named(&server, "job", 1);
    let semaphore = server.gate().semaphore("job", 1).id("worker-1").lease(Lease::fixed(LONG));
    for head_start in [Duration::ZERO, Duration::from_secs(86_400)] {
        let held = server.gate().semaphore("job", 1).acquire().unwrap();
        raw.queue(Ask { wait_ms: 60_000, inbox: "nobody:listens", ..raw.ask("worker-1") });
        // The first call of the next process, which does not wait, can remove the dead waiter.
        let mut stays_until = || raw.inspect().waiters.first().map(|waiter| waiter.patience_until);
        let left = stays_until();
        let next = semaphore.clone().head_start(head_start);
        let wait = thread::spawn(move || next.acquire_timeout(LONG));
        eventually("the next process waits", || stays_until().filter(|until| Some(*until) != left));
        held.release().unwrap();
        let permit = wait.join().unwrap().unwrap();
        permit.release().unwrap();
    }
}
