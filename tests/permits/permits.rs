//! Promise: a permit is released exactly once, whether it is released, dropped, handed on or forked, or the
//! server is unreachable.

use crate::forked::in_child;
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{Server, eventually};

use luagate::errors::{CallError, PermitError, TryAcquireError};
use luagate::scripts::semaphore::LookupAnswer;
use luagate::{Error, Gate, Lease, Permit, Released};
use std::thread::JoinHandle;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

fn impatient(server: &Server) -> Gate {
    Gate::builder(&server.url).prefix(&server.prefix).read_timeout(Duration::from_millis(150)).open().unwrap()
}

#[test]
fn permits_and_guards_are_send_and_sync() {
    fn assert_bounds<T: Send + Sync + 'static>() {}
    assert_bounds::<Permit>();
    assert_bounds::<Gate>();
    assert_bounds::<luagate::Semaphore>();
    assert_bounds::<Error>();
}

#[test]
fn releasing_or_dropping_frees_a_permit() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let semaphore = server.gate().semaphore("raw", 2);
    assert_eq!(semaphore.acquire().unwrap().release().unwrap(), Released::Released);
    assert_eq!(raw.in_use(), 0);
    drop(semaphore.acquire().unwrap());
    eventually("the permit is free", || (raw.in_use() == 0).then_some(()));
    let revoked = semaphore.acquire().unwrap();
    raw.assert_released(revoked.id());
    assert_eq!(revoked.release().unwrap(), Released::Gone);
}

#[test]
fn dropping_in_a_panic_frees_a_permit() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(LONG));
    let (mutex, both) = (gate.mutex("raw"), gate.mutexes(["a", "b"]));
    let (locks, asks, several) = (mutex.clone(), semaphore.clone(), both.clone());
    let panicking = std::thread::spawn(move || {
        let _permit = asks.acquire().unwrap();
        let _guard = locks.lock().unwrap();
        let _guards = several.acquire_timeout(Duration::from_secs(10)).unwrap();
        assert!(asks.try_acquire().is_err() && locks.try_lock().is_err());
        panic!("on purpose");
    });
    let panic = panicking.join().unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    // A drop can also release in the background.
    drop(eventually("the permit is free", || semaphore.try_acquire().ok()));
    drop(eventually("the mutex is free", || mutex.try_lock().ok()));
    drop(both.acquire_timeout(Duration::from_secs(10)).unwrap());
}

#[test]
fn an_inspection_shows_the_holder_of_a_permit() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 5).label("web-3").lease(Lease::fixed(LONG));
    let permit = semaphore.try_acquire_many(2).unwrap();
    let state = semaphore.inspect().unwrap();
    let holder = &state.holders[0];
    assert_eq!((holder.id.as_str(), holder.label()), (permit.id(), Some("web-3")));
    assert_eq!((holder.permits, holder.fence), (2, permit.fence()));
    assert!(holder.remaining.unwrap() > LONG / 2);
    assert_eq!((state.limit, state.in_use, state.holder_count), (Some(5), 2, 1));
    assert!(state.to_string().contains("2 of 5 permits are in use"), "{state}");
    assert!(permit.to_string().contains(permit.id()), "{permit}");
    assert!(format!("{permit:?}").contains(permit.id()), "{permit:?}");
}

#[test]
fn a_permit_can_be_handed_to_another_process() {
    let server = Server::any();
    let (here, there) = (server.gate(), server.gate());
    let permit = here.semaphore("raw", 3).lease(Lease::fixed(LONG)).try_acquire_many(2).unwrap();
    let fence = permit.fence();
    let id = permit.into_id();
    let adopted = there.semaphore("raw", 3).adopt(&id).unwrap();
    assert_eq!((adopted.id(), adopted.fence(), adopted.permits()), (id.as_str(), fence, 2));
    assert_eq!(there.semaphore("raw", 3).available_permits().unwrap(), 1);
    adopted.release().unwrap();
    let nothing = there.semaphore("raw", 3).adopt(&id);
    assert!(matches!(nothing, Err(PermitError::Lost(_))));
}

#[test]
fn an_unconfirmed_release_can_be_retried() {
    let mut server = own!(Server::private(&[]));
    let gate = impatient(&server);
    let permit = gate.semaphore("raw", 1).lease(Lease::fixed(LONG)).acquire().unwrap();
    server.pause();
    let error = permit.release().unwrap_err();
    assert!(matches!(error.error(), CallError::Unknown(_)), "{error}");
    let permit = error.into_permit();
    server.resume();
    permit.release().unwrap();
    assert_eq!(Raw::new(&server, 1).in_use(), 0);
}

#[test]
fn a_call_with_a_lost_reply_is_retried_with_the_same_id() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 5);
    let semaphore = gate.semaphore("raw", 5).lease(Lease::fixed(LONG));
    semaphore.try_acquire().unwrap().release().unwrap(); // the script is loaded
    proxy.lose_replies(1);
    let mut permit = semaphore.try_acquire_many(3).unwrap();
    assert!(proxy.is_done());
    assert_eq!(raw.in_use(), 3, "granted twice");
    proxy.lose_replies(1);
    permit.release_some(1).unwrap();
    assert_eq!(raw.in_use(), 2, "released twice");
    proxy.lose_replies(1);
    permit.refresh().unwrap();
    proxy.lose_replies(1);
    permit.release().unwrap();
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn an_unknown_outcome_is_reported_and_nothing_stays_held() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 5);
    let semaphore = gate.semaphore("raw", 5).lease(Lease::fixed(LONG));
    semaphore.try_acquire().unwrap().release().unwrap();
    proxy.lose_replies(2);
    let error = semaphore.try_acquire().unwrap_err();
    assert!(matches!(error, TryAcquireError::Unknown(_)), "{error}");
    eventually("the background releases it", || (raw.in_use() == 0).then_some(()));
}

#[test]
fn a_call_that_may_have_run_is_released_although_its_retry_was_refused() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    let mut admin = server.connection();
    let mut require = |password: &str| {
        let mut config = redis::cmd("CONFIG");
        let config = config.arg("SET").arg("requirepass").arg(password);
        config.exec(&mut admin).unwrap();
    };
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(LONG));
    semaphore.try_acquire().unwrap().release().unwrap(); // the next reply is that of the next call
    // From now on new connections are refused. Open connections keep working.
    require("secret");
    proxy.lose_replies(1);
    let error = semaphore.try_acquire().unwrap_err();
    assert!(proxy.is_done());
    assert_eq!(raw.in_use(), 1, "the call did not run");
    assert!(matches!(error, TryAcquireError::Unknown(_)), "{error}");
    require("");
    eventually("the background releases it", || (raw.in_use() == 0).then_some(()));
}

#[test]
fn a_permanent_permit_expires_if_its_reply_was_lost() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    let semaphore = gate.semaphore("raw", 1).lease(Lease::PERMANENT);
    semaphore.try_acquire().unwrap().release().unwrap(); // the next grant is the only one
    let acquire = || {
        let semaphore = semaphore.clone();
        std::thread::spawn(move || semaphore.acquire().unwrap())
    };
    // Granted at once.
    proxy.keep_replies();
    assert_permanent_once_known(&proxy, &mut raw, acquire());
    // Granted in line.
    raw.grant(raw.ask("holder"));
    let waiting = acquire();
    eventually("the caller is in line", || (raw.inspect().waiter_count == 1).then_some(()));
    proxy.keep_replies();
    raw.assert_released("holder");
    assert_permanent_once_known(&proxy, &mut raw, waiting);
}

/// Asserts that a permanent permit has a lease end until its caller has received the grant.
fn assert_permanent_once_known(proxy: &Proxy, raw: &mut Raw, acquiring: JoinHandle<Permit>) {
    let end = eventually("the permit is granted", || Some(raw.inspect().holders.first()?.expires_at));
    let end = end.expect("it would be held for ever if its caller crashed now");
    assert!(end <= raw.server_ms() + 30_000);
    proxy.let_go();
    let permit = acquiring.join().unwrap();
    assert_eq!(permit.remaining(), None);
    assert_eq!(raw.inspect().holders[0].expires_at, None);
    permit.release().unwrap();
}

#[test]
fn a_call_that_stalled_is_followed_by_its_release_on_the_same_connection() {
    let mut server = own!(Server::private(&[]));
    let gate = impatient(&server);
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(LONG));
    let mut raw = Raw::new(&server, 1);
    for _ in 0..20 {
        // Also if the machine is slow.
        drop(eventually("a permit is granted", || semaphore.try_acquire().ok()));
        let before = eventually("the permit is released", || {
            let state = raw.inspect();
            (state.in_use == 0).then_some(state.last_fence)
        });
        server.pause();
        let error = semaphore.try_acquire().unwrap_err();
        assert!(matches!(error, TryAcquireError::Unknown(_)), "{error}");
        server.resume();
        // The server first runs the acquire, whose caller has given up, and then its release.
        eventually("the permit is granted and released", || {
            let state = raw.inspect();
            (state.in_use == 0 && state.last_fence > before).then_some(())
        });
    }
}

#[cfg(unix)]
#[test]
fn a_forked_child_releases_nothing() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let gate = server.gate();
    let mut permit = Some(gate.semaphore("raw", 1).acquire().unwrap());
    let refused = in_child(|| {
        gate.semaphore("raw", 1).try_acquire().is_err()
            && permit.as_ref().is_some_and(|permit| permit.refresh().is_err())
            && permit.take().is_some_and(|permit| permit.release().is_err())
    });
    assert_eq!(refused.as_deref(), Some("true"), "the child used its parent's connections");
    let permit = permit.unwrap();
    assert!(raw.holds(permit.id()));
    permit.release().unwrap();
}

#[test]
fn permits_outlive_their_gate() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let semaphore = server.gate().semaphore("raw", 1);
    let permit = semaphore.lease(Lease::renewed(Duration::from_secs(3))).acquire().unwrap();
    let mut lease_end = || match raw.lookup(permit.id()) {
        LookupAnswer::Held(grant) => grant.expires_at.unwrap(),
        other => panic!("{other:?}"),
    };
    for _ in 0..2 {
        let before = lease_end();
        eventually("the permit is renewed", || (lease_end() > before).then_some(()));
    }
    drop(permit);
    eventually("the permit is free", || (raw.in_use() == 0).then_some(()));
}

#[test]
fn every_error_converts_into_the_common_error() {
    let server = Server::any();
    fn all(server: &Server) -> Result<(), Error> {
        let gate = Gate::builder(&server.url).prefix(&server.prefix).open()?;
        let semaphore = gate.semaphore("raw", 1);
        semaphore.acquire()?.release()?;
        gate.mutex("raw").lock()?.release()?;
        semaphore.acquire_timeout(Duration::from_secs(1))?.refresh()?;
        semaphore.resize(2)?;
        let _held = (semaphore.try_acquire()?, semaphore.try_acquire()?);
        drop(semaphore.try_acquire()?);
        Ok(())
    }
    assert!(matches!(all(&server), Err(Error::Denied(_))));
}

#[test]
fn a_reused_own_id_is_not_released_by_an_earlier_calls_release() {
    let mut server = own!(Server::private(&[]));
    let gate = impatient(&server);
    let mut raw = Raw::new(&server, 1);
    let semaphore = gate.semaphore("raw", 1).id("me").lease(Lease::fixed(LONG));
    for _ in 0..2 {
        server.pause();
        let error = semaphore.try_acquire().unwrap_err();
        assert!(matches!(error, TryAcquireError::Unknown(_)), "{error}");
        // Meanwhile the background retries without success, with pauses of up to a second.
        std::thread::sleep(Duration::from_millis(700));
        server.resume();
        let permit = semaphore.try_acquire().unwrap();
        let later = raw.server_ms() + 1_500;
        raw.wait_until(later);
        assert!(raw.holds("me"));
        permit.release().unwrap();
    }
}

#[test]
fn a_permit_is_released_although_its_connection_went_silent() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    let permit = gate.semaphore("raw", 1).lease(Lease::fixed(LONG)).acquire().unwrap();
    proxy.go_silent();
    drop(permit);
    eventually("the background releases it over another connection", || (raw.in_use() == 0).then_some(()));
}

#[test]
fn dropping_a_lost_permit_of_an_own_id_does_not_affect_its_successor() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let semaphore = server.gate().semaphore("raw", 1).id("me");
    let lost = semaphore.clone().lease(Lease::fixed(Duration::from_millis(300))).acquire().unwrap();
    eventually("the permit is lost", || lost.is_lost().then_some(()));
    let semaphore = semaphore.lease(Lease::fixed(LONG));
    // The client regards it as lost slightly before the server does.
    let next = eventually("the lease ends on the server", || semaphore.try_acquire().ok());
    drop(lost);
    assert!(raw.holds("me") && !next.is_lost());
    next.release().unwrap();
}

#[test]
fn a_revoked_permit_of_an_own_id_stays_lost_although_its_successor_holds() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1).id("me").lease(Lease::fixed(LONG));
    let revoked = semaphore.acquire().unwrap();
    semaphore.revoke("me").unwrap();
    let next = semaphore.acquire().unwrap();
    assert!(matches!(revoked.refresh(), Err(PermitError::Lost(_))));
    assert!(revoked.is_lost() && !next.is_lost());
    assert_eq!(revoked.release().unwrap(), Released::Gone);
    next.refresh().unwrap();
    assert_eq!(next.release().unwrap(), Released::Released);
}
