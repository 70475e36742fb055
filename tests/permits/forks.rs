//! Promise: a forked child does no harm with objects of its parent. Every call in the child returns at once.
#![cfg(unix)]

use crate::forked::in_child;
use crate::own;
#[cfg(feature = "tls")]
use crate::own_tls;
use crate::support::raw::Raw;
use crate::support::stop::Stop;
use crate::support::{SOON, Server, eventually, within};
#[cfg(feature = "tls")]
use crate::tls_server::Authority;

use futures_executor::block_on;
use luagate::errors::FailureKind;
use luagate::{Cancel, Error, Gate, GateBuilder, Lease};
use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

/// A property that must hold in the child, and its check.
type Check<'a> = (&'static str, &'a dyn Fn() -> bool);

/// Forks. Returns the first check that failed in the child, or that the child panicked or hung.
fn not_found(checks: &[Check]) -> Option<String> {
    let wrong = || checks.iter().find(|(_, check)| !check()).map_or("", |(what, _)| what).to_owned();
    let found = in_child(wrong).unwrap_or_else(|| "the child panicked or hung".to_owned());
    (!found.is_empty()).then_some(found)
}

fn is_forked(error: impl Into<Error>) -> bool {
    matches!(error.into(), Error::Failed(failure) if failure.kind() == FailureKind::Forked)
}

#[test]
fn calls_in_a_child_return_at_once_whatever_lock_its_parent_held() {
    let server = Server::any();
    let gate = server.gate();
    let cancel = Cancel::new();
    let semaphore = gate.semaphore("busy", 3).cancelled_by(&cancel);
    let permit = semaphore.acquire_many(2).unwrap();
    let stop = Stop::default();
    thread::scope(|scope| {
        let _stop = stop.at_end();
        // These threads take every lock again and again, so most forks happen while a lock is held.
        scope.spawn(|| {
            while !stop.is_set() {
                assert!(!permit.is_lost());
            }
        });
        scope.spawn(|| {
            while !stop.is_set() {
                drop(semaphore.acquire_timeout(Duration::from_secs(5)));
                assert!(!cancel.is_cancelled());
            }
        });
        let checks: &[Check] = &[
            ("the permit is lost", &|| permit.is_lost()),
            ("no time of the lease is left", &|| permit.remaining() == Some(Duration::ZERO)),
            ("it has no permits", &|| permit.permits() == 0),
            ("its text says lost", &|| format!("{permit} {permit:?}").contains("lost")),
            ("a handle created in the child is cancelled", &|| {
                cancel.cancel();
                cancel.is_cancelled()
            }),
            ("an inspection is refused", &|| semaphore.available_permits().is_err_and(is_forked)),
            ("a call is refused", &|| semaphore.acquire().is_err_and(is_forked)),
        ];
        let wrong = (0..60).find_map(|_| not_found(checks));
        assert_eq!(wrong, None);
    });
    assert!(!cancel.is_cancelled(), "the parent's handle is not affected");
    permit.release().unwrap();
}

#[test]
fn a_child_does_not_run_its_parents_pending_releases() {
    let mut server = own!(Server::private(&[]));
    let mut raw = Raw::named(&server, "job", 1);
    let builder = Gate::builder(&server.url).prefix(&server.prefix);
    let builder = builder.read_timeout(Duration::from_millis(500));
    let gate = builder.open().unwrap();
    let job = gate.semaphore("job", 1).id("worker-1");
    let (other, first) = (gate.mutex("other").lock().unwrap(), job.acquire().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let holds_again = folder.path().join("holds again");
    server.pause();
    drop(other); // the background release thread is busy with this one
    drop(first); // so this one is in its queue, in the parent and in the child's copy
    thread::scope(|scope| {
        let child = scope.spawn(|| {
            not_found(&[
                ("the parent holds the permit again", &|| within(SOON, || exists(&holds_again)).is_some()),
                ("a try is refused", &|| job.try_acquire().is_err_and(is_forked)),
                ("a try for several is refused", &|| job.try_acquire_available().is_err_and(is_forked)),
                ("a permit is not adopted", &|| job.adopt("worker-1").is_err_and(is_forked)),
            ])
        });
        thread::sleep(Duration::from_millis(100)); // the fork happens while the release is pending
        server.resume();
        let next = eventually("the permit is free again", || job.try_acquire().ok());
        std::fs::write(&holds_again, "").unwrap();
        assert_eq!(child.join().unwrap(), None);
        assert!(raw.holds("worker-1"));
        next.release().unwrap();
    });
}

fn exists(path: &Path) -> Option<()> {
    path.exists().then_some(())
}

/// The ids of the connections of the server, except for the one that asks.
fn connections(con: &mut redis::Connection) -> BTreeSet<String> {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(con).unwrap();
    let others = list.lines().filter(|line| !line.contains("cmd=client"));
    others.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// A child that drops all copies of a gate, and of what was made by it. No thread of the gate runs in the
/// parent, so these are the last copies in the child.
fn a_child_drops_everything(builder: GateBuilder, con: &mut redis::Connection) {
    let gate = builder.open().unwrap();
    let semaphore = gate.semaphore("desk", 1);
    let permit = semaphore.clone().lease(Lease::fixed(Duration::from_secs(600))).acquire().unwrap();
    semaphore.acquire_timeout(Duration::from_secs(1)).unwrap_err(); // opens the connection for messages
    let before = connections(con);
    assert_eq!(before.len(), 2, "one for calls and one for messages");
    let mut copies = Some((permit, semaphore, gate));
    assert_eq!(in_child(|| copies.take().is_some()).as_deref(), Some("true"));
    let (permit, semaphore, gate) = copies.unwrap();
    permit.refresh().unwrap();
    permit.release().unwrap();
    let permit = semaphore.acquire_timeout(SOON).unwrap();
    semaphore.acquire_timeout(Duration::from_millis(20)).unwrap_err();
    assert_eq!(gate.counters().reconnects, 0);
    assert_eq!(connections(con), before);
    permit.release().unwrap();
}

#[test]
fn a_child_that_drops_its_copies_leaves_the_connections_to_its_parent() {
    let (server, node) = (own!(Server::private_tcp(&[])), own!(Server::cluster_node()));
    for (url, server) in [
        (server.url.clone(), &server),
        (server.socket_url(), &server),
        (format!("redis+cluster://{}", node.address()), &node),
    ] {
        a_child_drops_everything(Gate::builder(&url), &mut server.connection());
    }
}

#[cfg(feature = "tls")]
#[test]
fn a_child_that_drops_its_copies_leaves_the_connections_with_tls_to_its_parent() {
    let authority = Authority::new("one");
    let own = authority.identity();
    let mut server = own_tls!(authority.server(&own, &[]));
    server.client = Some(authority.client(&server.url, &own));
    let builder = Gate::builder(&server.url).root_certificates(&authority.pem);
    let builder = builder.client_certificate(&own.chain, &own.key);
    a_child_drops_everything(builder, &mut server.connection());
}

/// A future of any operation, after its first poll.
type Begun<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The future of an operation that will succeed, after its first poll.
fn begun<'a, T, E: std::fmt::Debug>(operation: impl Future<Output = Result<T, E>> + 'a) -> Begun<'a> {
    let mut future: Begun = Box::pin(async { drop(operation.await.unwrap()) });
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    future
}

#[test]
fn a_child_drops_the_futures_of_its_parent_whatever_lock_its_parent_held() {
    let server = Server::any();
    let gate = server.gate();
    let long = Lease::fixed(Duration::from_secs(600));
    let (busy, desk) = (gate.semaphore("busy", 3), gate.semaphore("desk", 1).lease(long));
    let latch = gate.latch("latch", 1);
    let [held, refreshed, released] = ["desk", "refreshed", "released"];
    let [held, refreshed, released] = [held, refreshed, released].map(|name| {
        let semaphore = gate.semaphore(name, 1).lease(long);
        semaphore.acquire().unwrap()
    });
    let revoked =
        gate.semaphore("revoked", 1).lease(Lease::renewed(Duration::from_secs(1))).acquire().unwrap();
    let stop = Stop::default();
    thread::scope(|scope| {
        let _stop = stop.at_end();
        // These threads take every lock again and again, so most forks happen while a lock is held.
        scope.spawn(|| {
            while !stop.is_set() {
                assert!(!held.is_lost());
                gate.flush().unwrap();
            }
        });
        scope.spawn(|| {
            while !stop.is_set() {
                drop(busy.acquire_timeout(SOON).unwrap());
                drop(block_on(busy.acquire_timeout_async(SOON)).unwrap());
            }
        });
        let mut futures = Some(vec![
            begun(async { desk.acquire_async().await?.release_async().await.map_err(Error::from) }),
            begun(async { gate.semaphore("free", 1).try_acquire_async().await }),
            begun(async { refreshed.refresh_async().await }),
            begun(async { released.release_async().await }),
            begun(async { latch.wait_async().await }),
            begun(async { Ok::<_, Error>(revoked.lost_async().await) }),
            begun(async { busy.inspect_async().await }),
        ]);
        for round in 0..60 {
            let dropped = in_child(|| futures.take().is_some());
            assert_eq!(dropped.as_deref(), Some("true"), "the child of round {round} panicked or hung");
        }
        // All of them go on in the parent.
        desk.revoke(held.id()).unwrap();
        latch.count_down().unwrap();
        gate.semaphore("revoked", 1).revoke(revoked.id()).unwrap();
        futures.unwrap().into_iter().for_each(block_on);
    });
}
