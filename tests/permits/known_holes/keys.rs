//! Promise: keys expire when they are not needed, scripts use only declared keys, and a lost key causes no double
//! grants.

use crate::own;
use crate::support::raw::Raw;
use crate::support::{Server, eventually};

use luagate::Released;
use luagate::errors::{CallError, FailureKind};
use luagate::scripts::semaphore::{self, Answer, Ask, AskOne};
use redis::Commands;

#[test]
fn hole_20_keys_stay_for_ever() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    raw.queue(Ask { wait_ms: 1_000, ..raw.ask("waiter") });
    assert!(raw.ttls().iter().all(|ttl| *ttl > 0), "{:?}", raw.ttls());
    raw.release("waiter");
    raw.release("holder");
    assert!(raw.ttls().iter().all(|ttl| *ttl != -1), "{:?}", raw.ttls());
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
    // An ACL user who may use the declared keys and no others, on a cluster node. The key names share a hash tag.
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
    allow(&keys.names());
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
    allow(&[one.names(), other.names()].concat());
    semaphore::try_acquire_several(&mut user, "id", &[&one, &other].map(AskOne::mutex)).unwrap();
    // Other keys are refused.
    let refused = semaphore::acquire(&mut user, &keys, &ask);
    assert!(
        matches!(&refused, Err(CallError::Failed(failure)) if failure.kind() == FailureKind::Permission),
        "{refused:?}"
    );
}

#[test]
fn hole_36_one_key_of_several_is_evicted() {
    let server = Server::any();
    for evicted in 0..3 {
        let mut raw = Raw::named(&server, &format!("evicted-{evicted}"), 2);
        let mut hold = |id: &str| {
            let ask = Ask { lease_ms: 300, ..raw.ask(id) };
            raw.grant(ask).expires_at.unwrap()
        };
        let end = hold("a").max(hold("b"));
        raw.queue(Ask { wait_ms: 60_000, ..raw.ask("waiter") });
        let key = raw.key_names()[evicted].clone();
        let _: () = raw.con.del(key).unwrap();
        // Never more than the limit, and granting continues.
        let granted = eventually("a permit is granted again", || match raw.acquire(raw.ask("next")) {
            Answer::Granted(grant, _) => Some(grant.now),
            _ => None,
        });
        assert!(granted >= end, "{} ms too early", end - granted);
    }
}
