//! Promise: permits are renewed while they live, by one thread for all; loss is known before the server's deadline; and
//! nothing is renewed after its release.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{self, SOON, Server, eventually};

use luagate::errors::{Lost, RefreshError};
use luagate::scripts::semaphore::{Ask, LookupAnswer, lookup};
use luagate::{Gate, Permit, Released, Revoked};
use std::collections::HashSet;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Long beside the pauses of a busy machine: a renewal may be late by two thirds of it.
const LEASE: Duration = Duration::from_secs(2);

/// Waits until the server's clock shows `leases` leases more.
fn pass(raw: &mut Raw, leases: u32) {
    let until = raw.server_ms() + u64::try_from((LEASE * leases).as_millis()).unwrap();
    raw.wait_until(until);
}

#[test]
fn a_renewed_permit_outlives_its_lease_and_one_that_is_not_does_not() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let semaphore = server.gate().semaphore("raw", 2).lease(LEASE);
    let renewed = semaphore.clone().auto_renew().acquire().unwrap();
    let left_alone = semaphore.acquire().unwrap();
    pass(&mut raw, 2);
    assert!(!renewed.is_lost() && raw.holds(renewed.id()));
    assert!(left_alone.is_lost() && !raw.holds(left_alone.id()));
    assert!(matches!(left_alone.refresh(), Err(RefreshError::Lost(_))));
    assert!(renewed.remaining().unwrap() > LEASE / 3);
}

#[test]
fn with_nothing_chosen_a_lease_of_30_s_is_renewed() {
    let server = Server::any();
    let permit = server.gate().semaphore("default", 1).acquire().unwrap();
    let left = permit.remaining().unwrap();
    assert!(left > Duration::from_secs(28) && left < Duration::from_secs(30), "{left:?}");
}

#[test]
fn a_refresh_counts_from_now() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1).lease(Duration::from_secs(20));
    let permit = semaphore.acquire().unwrap();
    let mut raw = Raw::new(&server, 1);
    raw.refresh(permit.id(), 1_000);
    permit.refresh().unwrap();
    let LookupAnswer::Held(grant) = raw.lookup(permit.id()) else { panic!() };
    assert!(grant.expires_at.unwrap() - grant.now > 19_000);
    assert!(
        permit.remaining().unwrap()
            <= Duration::from_millis(grant.expires_at.unwrap() - grant.now) + Duration::from_secs(1)
    );
}

#[test]
fn a_lease_counts_from_before_its_call_left() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    let semaphore = gate.semaphore("raw", 1).lease(SOON);
    // So many replies come at once, and the next one late.
    let late_after = |replies: usize| {
        let late = Duration::from_millis(100);
        let at_once = std::iter::repeat_n(Duration::ZERO, replies);
        proxy.delay_replies(at_once.chain([late]));
    };
    late_after(1); // the server does not know the script yet
    let permit = semaphore.try_acquire().unwrap();
    assert_early("with a new script", &server, &permit);
    permit.refresh().unwrap();
    late_after(0);
    permit.refresh().unwrap();
    assert_early("refreshed", &server, &permit);
    late_after(1);
    let adopted = semaphore.adopt(&permit.into_id()).unwrap();
    assert_early("adopted", &server, &adopted);
    adopted.release().unwrap();
    late_after(0);
    let permit = semaphore.try_acquire().unwrap();
    assert_early("at once", &server, &permit);
    permit.release().unwrap();
    late_after(0);
    let permit = semaphore.acquire_timeout(SOON).unwrap();
    assert_early("with a timeout", &server, &permit);
    permit.release().unwrap();
    raw.grant(raw.ask("holder"));
    let waiting = std::thread::spawn(move || semaphore.acquire().unwrap());
    eventually("it waits", || (raw.inspect().waiter_count == 1).then_some(()));
    late_after(0);
    raw.assert_released("holder");
    let permit = waiting.join().unwrap();
    assert_early("by message", &server, &permit);
    let both = gate.mutexes(["{g}:a", "{g}:b"]).lease(SOON);
    drop(both.try_lock_all().unwrap());
    late_after(0);
    let guard = both.try_lock_all().unwrap();
    let several: Vec<&Permit> = guard.iter().map(|(_, permit)| permit).collect();
    for permit in &several {
        assert_early("several at once", &server, permit);
    }
    late_after(0);
    assert!(Permit::refresh_all(several.iter().copied()).iter().all(Result::is_ok));
    for permit in &several {
        assert_early("several refreshed", &server, permit);
    }
}

/// The permit ends here no later than on the server.
#[track_caller]
fn assert_early(how: &str, server: &Server, permit: &Permit) {
    let mut con = server.connection();
    let LookupAnswer::Held(held) = lookup(&mut con, permit.keys(), permit.id()).unwrap() else {
        panic!("{how}: the server knows nothing of {permit}");
    };
    // The server is asked first, so what is left here is less, whatever time passes in between.
    let there = Duration::from_millis(held.expires_at.unwrap() - held.now);
    let here = permit.remaining().unwrap();
    assert!(here <= there, "{how}: {here:?} here, {there:?} there");
}

/// How many threads of this process have this name.
#[cfg(target_os = "linux")]
fn threads_named(name: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|comm| name.starts_with(comm.trim()))
        .count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_thousand_permits_one_thread_one_pool() {
    // In a process of its own, where no other test has threads.
    let server = own!(Server::private(&[]));
    let status = support::process("thousand", &[&server.url, &server.prefix]).status().unwrap();
    assert!(status.success());
}

#[cfg(target_os = "linux")]
pub fn hold_a_thousand(arguments: &[String]) {
    let [url, prefix] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let semaphore = gate.semaphore("raw", 1_000).lease(Duration::from_secs(3)).auto_renew();
    let permits: Vec<Permit> = (0..1_000).map(|_| semaphore.acquire().unwrap()).collect();
    let start = Instant::now();
    eventually("more than two leases pass", || {
        assert!(permits.iter().all(|permit| !permit.is_lost()));
        (start.elapsed() > Duration::from_secs(7)).then_some(())
    });
    assert_eq!(threads_named("luagate-renewal"), 1);
    assert_eq!(threads_named("luagate-inbox"), 0);
    assert!(gate.open_connections() <= 8);
    let state = semaphore.inspect().unwrap();
    assert_eq!(state.holder_count, 1_000);
}

/// A permit that says when it is lost.
fn watched(server: &Server) -> (Permit, Receiver<Lost>) {
    let (sender, receiver) = channel();
    let semaphore = server.gate().semaphore("raw", 1).lease(LEASE).auto_renew();
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    (semaphore.acquire().unwrap(), receiver)
}

#[test]
fn loss_is_known_before_the_lease_ends_on_the_server() {
    let mut server = own!(Server::private(&[]));
    let (permit, told) = watched(&server);
    let mut raw = Raw::new(&server, 1);
    server.pause(); // renewals go out, and nothing comes back
    eventually("it is lost", || permit.is_lost().then_some(()));
    assert_eq!(permit.remaining(), Some(Duration::ZERO));
    server.resume();
    assert_eq!(told.recv_timeout(SOON).unwrap().id, permit.id());
    assert!(matches!(permit.refresh(), Err(RefreshError::Lost(_))), "it came back");
    eventually("its lease ends", || (!raw.holds(permit.id())).then_some(()));
    assert!(permit.is_lost());
}

/// A gate that waits for a reply for longer than a test takes.
fn patient(server: &Server) -> luagate::Gate {
    let gate = luagate::Gate::builder(&server.url).prefix(&server.prefix);
    gate.read_timeout(10 * SOON).open().unwrap()
}

#[test]
fn loss_is_told_when_the_lease_ends_though_a_renewal_has_no_answer() {
    let mut server = own!(Server::private(&[]));
    let (sender, told) = channel();
    let semaphore = patient(&server).semaphore("raw", 1).lease(LEASE);
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let permit = semaphore.auto_renew().acquire().unwrap();
    server.pause();
    let lost = told.recv_timeout(SOON).expect("nobody was told");
    assert_eq!(lost.id, permit.id());
    assert!(permit.is_lost());
    server.resume();
}

#[test]
fn loss_is_told_when_the_lease_ends_though_another_s_renewal_has_no_answer() {
    let mut server = own!(Server::private(&[]));
    let gate = patient(&server);
    let (sender, told) = channel();
    let semaphore = gate.semaphore("raw", 1).lease(LEASE);
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let permit = semaphore.acquire().unwrap();
    // The other one is renewed first, and its reply is waited for until its own end.
    let other = gate.semaphore("other", 1).lease(LEASE).auto_renew();
    let other = other.acquire().unwrap();
    other.refresh_for(10 * SOON).unwrap();
    server.pause();
    let lost = told.recv_timeout(SOON).expect("nobody was told");
    assert_eq!(lost.id, permit.id());
    assert!(permit.is_lost());
    server.resume();
}

#[test]
fn a_revoked_permit_is_lost_at_its_next_renewal() {
    let server = Server::any();
    let (permit, told) = watched(&server);
    let semaphore = server.gate().semaphore("raw", 1);
    assert_eq!(semaphore.revoke(permit.id()).unwrap(), Revoked::Held);
    assert_eq!(semaphore.revoke(permit.id()).unwrap(), Revoked::Nothing);
    assert_eq!(told.recv_timeout(SOON).unwrap().id, permit.id());
    assert!(permit.is_lost());
    drop(semaphore.try_acquire().unwrap());
}

#[test]
fn a_panic_in_a_callback_stops_neither_renewal_nor_the_next_callback() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 3).lease(LEASE).auto_renew();
    let (sender, receiver) = channel();
    let panicking = semaphore.clone().on_lost(|lost| panic!("on purpose, for {lost}")).acquire().unwrap();
    let telling = semaphore.clone().on_lost(move |lost| sender.send(lost.clone()).unwrap()).acquire().unwrap();
    let renewed = semaphore.acquire().unwrap();
    raw.assert_released(panicking.id());
    eventually("the first is lost", || panicking.is_lost().then_some(()));
    raw.assert_released(telling.id());
    assert_eq!(receiver.recv_timeout(SOON).unwrap().id, telling.id());
    pass(&mut raw, 2);
    assert!(raw.holds(renewed.id()) && !renewed.is_lost());
}

#[test]
fn one_failed_renewal_does_not_end_renewing() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let (permit, told) = watched(&server);
    let until = raw.server_ms() + 2 * u64::try_from(LEASE.as_millis()).unwrap();
    while raw.server_ms() < until {
        support::kill_connections(&mut raw.con, "normal");
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut raw.con).unwrap();
        let pause = raw.server_ms() + 80;
        raw.wait_until(pause);
    }
    assert!(!permit.is_lost() && raw.holds(permit.id()));
    assert!(told.try_recv().is_err());
}

#[test]
fn nothing_is_renewed_after_its_release() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let semaphore = server.gate().semaphore("raw", 3).lease(LEASE).auto_renew();
    let released = semaphore.acquire().unwrap();
    let handed_on = semaphore.acquire().unwrap();
    let still_held = semaphore.acquire().unwrap();
    let id = released.id().to_owned();
    released.release().unwrap();
    let handed_on = handed_on.into_id();
    // Somebody else takes the very id: whoever renewed it by mistake would now keep it alive.
    raw.grant(Ask { lease_ms: 400, ..raw.ask(&id) });
    pass(&mut raw, 2);
    assert!(!raw.holds(&id), "renewed after its release");
    assert!(!raw.holds(&handed_on), "renewed after it was handed on");
    assert!(raw.holds(still_held.id()), "nothing was renewed, so this test saw nothing");
}

#[test]
fn a_permanent_lease_never_ends() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let permit = server.gate().semaphore("raw", 1).permanent().acquire().unwrap();
    assert_eq!(permit.remaining(), None);
    assert!(!permit.is_lost());
    let LookupAnswer::Held(grant) = raw.lookup(permit.id()) else { panic!() };
    assert_eq!(grant.expires_at, None);
    permit.refresh().unwrap();
    permit.release().unwrap();
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn a_connection_that_went_silent_costs_no_permit() {
    let (_server, proxy, _) = own!(support::proxy::Proxy::with_gate());
    let gate = Gate::builder(&proxy.url).read_timeout(Duration::from_millis(200)).open().unwrap();
    let semaphore = gate.semaphore("raw", 50).lease(Duration::from_secs(3)).auto_renew();
    let permits: Vec<Permit> = (0..50).map(|_| semaphore.acquire().unwrap()).collect();
    proxy.go_silent();
    let start = Instant::now();
    eventually("a lease and more passes", || (start.elapsed() > Duration::from_secs(4)).then_some(()));
    assert!(permits.iter().all(|permit| !permit.is_lost()));
}

#[test]
fn a_renewal_without_an_answer_holds_up_others_until_the_end_of_its_own_lease_only() {
    let (server, proxy, _) = own!(Proxy::with_gate());
    let builder = Gate::builder(&proxy.url).prefix(&server.prefix);
    let builder = builder.connections(1).read_timeout(10 * SOON);
    let gate = builder.open().unwrap();
    let renewed = |name: &str, lease| {
        let semaphore = gate.semaphore(name, 1).lease(lease).auto_renew();
        semaphore.acquire().unwrap()
    };
    let permit = renewed("raw", Duration::from_secs(3));
    let _unanswered = renewed("other", LEASE / 10);
    proxy.go_silent();
    eventually("it is renewed over another connection", || {
        assert!(!permit.is_lost(), "it waited behind the other");
        (gate.counters().renewed > 0).then_some(())
    });
}

#[test]
fn in_a_busy_pool_renewals_come_first() {
    let (server, proxy, _) = own!(Proxy::with_gate());
    let builder = Gate::builder(&proxy.url).prefix(&server.prefix);
    let builder = builder.connections(1).read_timeout(100 * SOON);
    let gate = builder.open().unwrap();
    // Deadlines that are far apart keep their refreshes out of one packet.
    let others = (1..=6).map(|n| {
        let semaphore = gate.semaphore("others", 6).lease(n * 10 * SOON);
        semaphore.acquire().unwrap()
    });
    let others: Vec<Permit> = others.collect();
    let lease = Duration::from_secs(3);
    let renewed = gate.semaphore("raw", 1).lease(lease).auto_renew();
    let renewed = renewed.acquire().unwrap();
    std::thread::scope(|scope| {
        proxy.keep_replies();
        let refreshing: Vec<_> = others.iter().map(|other| scope.spawn(|| other.refresh().unwrap())).collect();
        // A renewal is due when a third has passed.
        eventually("it waits for the connection too", || (renewed.remaining().unwrap() < lease * 3 / 5).then_some(()));
        proxy.delay_replies([30, 30, 30, 30, 30, 30, 500].map(Duration::from_millis));
        proxy.let_go();
        for other in refreshing {
            other.join().unwrap();
        }
        assert!(gate.counters().renewed > 0, "it waited behind the others");
    });
}

#[test]
fn nobody_is_told_of_a_permit_that_was_released() {
    let server = Server::any();
    let (sender, receiver) = channel();
    let semaphore = server
        .gate()
        .semaphore("raw", 16)
        .lease(Duration::from_millis(450))
        .auto_renew()
        .on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let mut late = HashSet::new(); // on a machine that stood still for a whole lease
    for n in 0..30 {
        let permits: Vec<Permit> = (0..16).map(|_| semaphore.acquire().unwrap()).collect();
        // The release comes about when they are renewed for the first time.
        std::thread::sleep(Duration::from_micros(144_000 + n % 20 * 300));
        for permit in permits {
            let id = permit.id().to_owned();
            if permit.is_lost() || permit.release().unwrap() == Released::Gone {
                late.insert(id);
            }
        }
    }
    assert!(late.len() < 240, "most were released in time");
    for lost in receiver.try_iter() {
        assert!(late.contains(&lost.id), "told of {lost}");
    }
}

#[test]
fn a_refresh_without_a_reply_may_have_brought_the_end_nearer() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let alone = gate.semaphore("raw", 1);
    let shortened = alone.clone().lease(SOON).acquire().unwrap();
    let back = gate.semaphore("other", 1).lease(LEASE).acquire().unwrap();
    back.refresh_for(SOON).unwrap();
    proxy.lose_replies(4); // both calls are carried out twice, and told to nobody
    assert!(matches!(shortened.refresh_for(LEASE), Err(RefreshError::Unknown(_))));
    assert!(matches!(back.refresh(), Err(RefreshError::Unknown(_))));
    for (permit, name) in [(shortened, "raw"), (back, "other")] {
        let other = server.gate().semaphore(name, 1);
        eventually("the server frees it", || other.try_acquire().ok()).release().unwrap();
        assert!(permit.is_lost(), "{name}: two inside");
    }
}

#[test]
fn a_lease_that_was_made_shorter_is_renewed_in_time() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1);
    let (sender, receiver) = channel();
    let renewed = semaphore.lease(SOON).auto_renew().on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let permit = renewed.acquire().unwrap();
    permit.refresh_for(LEASE).unwrap();
    eventually("it has its own lease again", || {
        assert!(!permit.is_lost());
        (permit.remaining().unwrap() > LEASE).then_some(())
    });
    assert!(receiver.try_recv().is_err());
}

#[test]
fn a_lost_permit_of_an_own_id_gives_nothing_of_its_successor_back() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 5).id("own");
    let short = semaphore.clone().lease(Duration::from_millis(30));
    let mut lost = short.acquire_many(3).unwrap();
    let successor = eventually("its lease ends", || semaphore.acquire_many(3).ok());
    assert!(matches!(lost.release_some(1), Err(RefreshError::Lost(_))));
    assert_eq!(semaphore.inspect().unwrap().in_use, 3);
    assert_eq!(successor.release().unwrap(), Released::Released);
}

#[test]
fn a_permit_whose_renewal_is_stopped_lives_until_its_lease_ends() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let semaphore = server.gate().semaphore("raw", 3).lease(LEASE).auto_renew();
    let (sender, told) = channel();
    let telling = semaphore.clone().on_lost(move |lost| sender.send(lost.clone()).unwrap()).acquire().unwrap();
    let silent = semaphore.acquire().unwrap();
    let renewed = semaphore.acquire().unwrap();
    let end = raw.server_ms() + u64::try_from(LEASE.as_millis()).unwrap();
    telling.stop_renewal();
    silent.stop_renewal();
    assert!(!telling.is_lost() && raw.holds(telling.id()));
    raw.wait_until(end + 300);
    assert!(telling.is_lost() && !raw.holds(telling.id()), "renewed");
    assert!(silent.is_lost() && !raw.holds(silent.id()), "renewed");
    assert_eq!(told.recv_timeout(SOON).unwrap().id, telling.id());
    pass(&mut raw, 1);
    assert!(!renewed.is_lost() && raw.holds(renewed.id()));
}

/// When its lease ends on the server, in ms.
fn expiry(raw: &mut Raw, permit: &Permit) -> u64 {
    match raw.lookup(permit.id()) {
        LookupAnswer::Held(grant) => grant.expires_at.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_renewal_that_is_under_way_when_renewal_is_stopped_is_the_last() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    let (sender, told) = channel();
    let semaphore = gate.semaphore("raw", 1).lease(LEASE).auto_renew();
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let permit = semaphore.acquire().unwrap();
    let granted_until = expiry(&mut raw, &permit);
    proxy.delay_replies([LEASE / 4]);
    eventually("the server has renewed it", || (expiry(&mut raw, &permit) > granted_until).then_some(()));
    permit.stop_renewal();
    eventually("its reply counts", || (gate.counters().renewed > 0).then_some(()));
    assert!(!permit.is_lost(), "the new lease does not count");
    assert_eq!(told.recv_timeout(SOON).unwrap().id, permit.id());
    assert_eq!(gate.counters().renewed, 1);
}

#[test]
fn a_permit_whose_renewal_is_stopped_can_be_refreshed_by_hand() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let (permit, told) = watched(&server);
    permit.stop_renewal();
    permit.refresh_for(LEASE * 3).unwrap();
    assert!(permit.remaining().unwrap() > LEASE);
    pass(&mut raw, 1);
    assert!(!permit.is_lost() && raw.holds(permit.id()));
    assert!(told.try_recv().is_err(), "told before the end");
    assert_eq!(told.recv_timeout(SOON).unwrap().id, permit.id());
}

#[test]
fn of_several_mutexes_the_renewal_of_one_can_be_stopped() {
    let server = Server::any();
    let gate = server.gate();
    let both = gate.mutexes(["one", "other"]).lease(LEASE).auto_renew();
    let guard = both.lock_all(SOON).unwrap();
    let (one, other) = (guard.get("one").unwrap(), guard.get("other").unwrap());
    one.stop_renewal();
    let next = gate.mutex("one").try_lock_for(SOON).unwrap();
    assert!(one.is_lost() && next.fence() > one.fence());
    pass(&mut Raw::new(&server, 1), 4);
    assert!(!other.is_lost());
    assert!(gate.mutex("other").try_lock().is_err());
}
