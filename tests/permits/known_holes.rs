//! Known defects of widely used libraries, or of the first draft of this one, that no other test covers. The
//! number is that of the row in `tests/known_holes.md`. A test's name is the defect, which must not occur
//! here.

use crate::own;
use crate::support::Server;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;

use luagate::errors::{CallError, FailureKind, PermitError, TryAcquireError};
use luagate::scripts::semaphore::{self, Ask, AskOne};
use luagate::{Lease, Released};
use redis::Commands;
use std::time::Duration;

#[test]
fn hole_01_a_caller_with_a_short_lease_evicts_a_holder_with_a_long_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 60_000, ..raw.ask("long") });
    let later = raw.server_ms() + 20;
    raw.wait_until(later);
    raw.assert_denied(Ask { lease_ms: 1, ..raw.ask("short") });
    assert!(raw.holds("long"));
}

#[test]
fn hole_03_expiry_by_client_clocks() {
    // No script takes a client's time as an argument.
    let manifest: serde_json::Value = serde_json::from_str(include_str!("../../lua/manifest.json")).unwrap();
    for (name, script) in manifest["scripts"].as_object().unwrap() {
        for argument in script["argv"].as_array().unwrap() {
            let argument = argument.as_str().unwrap();
            assert!(!["now", "time", "expires_at", "deadline"].contains(&argument), "{name}: {argument}");
        }
    }
}

#[test]
fn hole_05_a_majority_of_masters_lets_three_in_under_a_limit_of_two() {
    // The result of majority voting: three callers each get two of three servers, and no server exceeds its
    // limit of two.
    let servers: Option<Vec<Server>> = (0..3).map(|_| Server::private(&[])).collect();
    let servers = own!(servers);
    let mut raws: Vec<Raw> = servers.iter().map(|server| Raw::new(server, 2)).collect();
    let callers = [("a", [0, 1]), ("b", [1, 2]), ("c", [2, 0])];
    for (caller, reached) in callers {
        for server in reached {
            let ask = raws[server].ask(caller);
            raws[server].grant(ask);
        }
    }
    // Therefore one server decides: each gate uses one server, the same for all callers.
    let gates = [servers[0].gate(), servers[0].gate(), servers[0].gate()];
    let permits = gates.map(|gate| gate.semaphore("one", 2).try_acquire());
    assert!(matches!(permits, [Ok(_), Ok(_), Err(TryAcquireError::Denied(_))]));
}

#[test]
fn hole_10_an_error_of_the_server_is_reported_as_a_lost_permit() {
    // A permit is lost if the server says so or its lease ends, not if a key is unreadable.
    let server = Server::any();
    let raw = Raw::new(&server, 1);
    let permit =
        server.gate().semaphore("raw", 1).lease(Lease::fixed(Duration::from_secs(60))).acquire().unwrap();
    let mut con = server.connection();
    let holders = raw.key_names()[1].clone();
    let aside = format!("{holders}:aside");
    let _: () = con.rename(&holders, &aside).unwrap();
    let _: () = con.set(&holders, "of another type").unwrap();
    let Err(PermitError::Failed(failure)) = permit.refresh() else { panic!() };
    assert_eq!(failure.kind(), FailureKind::WrongType);
    assert!(!permit.is_lost());
    let _: () = con.rename(&aside, &holders).unwrap();
    permit.refresh().unwrap();
}

#[test]
fn hole_29_permits_of_several_keys_released_in_part() {
    let server = Server::any();
    let gate = server.gate();
    let names = ["{trade}:sword", "{trade}:shield", "{trade}:helmet"];
    let guard = gate.mutexes(names).try_acquire().unwrap();
    let expired = guard.get("{trade}:shield").unwrap().id().to_owned();
    gate.mutex("{trade}:shield").revoke(&expired).unwrap();
    assert_eq!(guard.release().unwrap(), Released::Gone);
    for name in names {
        gate.mutex(name).try_lock().unwrap().release().unwrap();
    }
}

#[test]
fn hole_30_undeclared_keys() {
    // An ACL user who may use the declared keys and no others, on a cluster node. The key names share a hash
    // tag.
    let server = own!(Server::cluster_node());
    let mut con = server.connection();
    let mut allow = |keys: &[&str]| {
        let mut user = redis::cmd("ACL");
        user.arg(&["SETUSER", "default", "resetkeys"]);
        for key in keys {
            user.arg(format!("~{key}"));
        }
        user.exec(&mut con).unwrap();
    };
    let mut user = server.connection();
    let keys = server.keys("declared");
    allow(&keys.list());
    let ask = Ask { id: "id", limit: 1, ..Ask::default() };
    let waits = Ask { id: "waits", wait_ms: 10_000, ..ask };
    semaphore::acquire(&mut user, &keys, &ask).unwrap();
    semaphore::acquire(&mut user, &keys, &waits).unwrap();
    semaphore::refresh(&mut user, &keys, "id", 5_000, None).unwrap();
    semaphore::lookup(&mut user, &keys, "id").unwrap();
    semaphore::inspect(&mut user, &keys, 0, 10).unwrap();
    semaphore::resize(&mut user, &keys, 2, None).unwrap();
    semaphore::release(&mut user, &keys, "id", 0, None).unwrap();
    let (one, other) = (server.keys("{few}:one"), server.keys("{few}:other"));
    allow(&[one.list(), other.list()].concat());
    semaphore::try_acquire_several(&mut user, "id", &[&one, &other].map(AskOne::mutex)).unwrap();
    // Other keys are refused.
    let refused = semaphore::acquire(&mut user, &keys, &ask);
    assert!(
        matches!(&refused, Err(CallError::Failed(failure)) if failure.kind() == FailureKind::Permission),
        "{refused:?}"
    );
}

#[test]
fn hole_33_a_partial_release_repeated_gives_back_twice() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("raw", 5);
    semaphore.acquire().unwrap().release().unwrap();
    let mut permit = semaphore.acquire_many(5).unwrap();
    proxy.lose_replies(1);
    permit.release_some(2).unwrap();
    assert_eq!(permit.permits(), 3);
    assert_eq!(Raw::new(&server, 5).in_use(), 3);
}
