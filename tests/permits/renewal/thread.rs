//! Promise: one thread renews all permits until they are released, in spite of failures.

use super::{LEASE, pass, watched};
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{self, Server, eventually};

use luagate::scripts::semaphore::Ask;
use luagate::{Gate, Lease, Permit};
use std::time::{Duration, Instant};

/// The number of threads of this process with this name.
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
fn one_thread_and_one_connection_renew_a_thousand_permits() {
    // In another process, which has no threads of other tests.
    let server = own!(Server::private(&[]));
    let status = support::process("thousand", &[&server.url, &server.prefix]).status().unwrap();
    assert!(status.success());
}

#[cfg(target_os = "linux")]
pub fn hold_a_thousand(arguments: &[String]) {
    let [url, prefix] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let semaphore = gate.semaphore("raw", 1_000).lease(Lease::renewed(Duration::from_secs(3)));
    let permits: Vec<Permit> = (0..1_000).map(|_| semaphore.acquire().unwrap()).collect();
    let start = Instant::now();
    eventually("more than two leases pass", || {
        assert!(permits.iter().all(|permit| !permit.is_lost()));
        (start.elapsed() > Duration::from_secs(7)).then_some(())
    });
    assert_eq!(threads_named("luagate"), 1);
    assert_eq!(threads_named("luagate-io"), 2, "the thread of the gate, and that of its connection");
    let mut con = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut con).unwrap();
    assert_eq!(clients.lines().count(), 2, "the connection of the gate, and that of this test: {clients}");
    let state = semaphore.inspect().unwrap();
    assert_eq!(state.holder_count, 1_000);
}

#[test]
fn one_failed_renewal_does_not_end_renewal() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let (permit, reported) = watched(&server);
    let until = raw.server_ms() + 2 * u64::try_from(LEASE.as_millis()).unwrap();
    while raw.server_ms() < until {
        support::kill_connections(&mut raw.con, "normal");
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut raw.con).unwrap();
        let pause = raw.server_ms() + 80;
        raw.wait_until(pause);
    }
    assert!(!permit.is_lost() && raw.holds(permit.id()));
    assert!(reported.try_recv().is_err());
}

#[test]
fn nothing_is_renewed_after_its_release() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let semaphore = server.gate().semaphore("raw", 3).lease(Lease::renewed(LEASE));
    let released = semaphore.acquire().unwrap();
    let handed_on = semaphore.acquire().unwrap();
    let still_held = semaphore.acquire().unwrap();
    let id = released.id().to_owned();
    released.release().unwrap();
    let handed_on = handed_on.into_id();
    // Another holder acquires with the same id. A renewal by mistake would keep its permit held.
    raw.grant(Ask { lease_ms: 400, ..raw.ask(&id) });
    pass(&mut raw, 2);
    assert!(!raw.holds(&id), "renewed after its release");
    assert!(!raw.holds(&handed_on), "renewed after it was handed on");
    assert!(raw.holds(still_held.id()), "nothing was renewed, so nothing was tested");
}

#[test]
fn a_silent_connection_causes_no_loss() {
    let (_server, proxy, _) = own!(support::proxy::Proxy::with_gate());
    let gate = Gate::builder(&proxy.url).read_timeout(Duration::from_millis(200)).open().unwrap();
    let semaphore = gate.semaphore("raw", 50).lease(Lease::renewed(Duration::from_secs(3)));
    let permits: Vec<Permit> = (0..50).map(|_| semaphore.acquire().unwrap()).collect();
    proxy.go_silent();
    let start = Instant::now();
    eventually("a lease and more passes", || (start.elapsed() > Duration::from_secs(4)).then_some(()));
    assert!(permits.iter().all(|permit| !permit.is_lost()));
}

#[test]
fn a_renewal_without_a_reply_delays_others_at_most_until_its_own_lease_ends() {
    let (server, proxy, _) = own!(Proxy::with_gate());
    let builder = Gate::builder(&proxy.url).prefix(&server.prefix);
    let builder = builder.read_timeout(Duration::from_secs(1));
    let gate = builder.open().unwrap();
    let renewed = |name: &str, lease| {
        let semaphore = gate.semaphore(name, 1).lease(Lease::renewed(lease));
        semaphore.acquire().unwrap()
    };
    let permit = renewed("raw", Duration::from_secs(3));
    let _unanswered = renewed("other", LEASE / 10);
    proxy.go_silent();
    eventually("the permit is renewed over another connection", || {
        assert!(!permit.is_lost(), "the renewal waited for the other one");
        (gate.counters().renewed > 0).then_some(())
    });
}
