//! Promise: a tool finds each semaphore, mutex and reader-writer lock that the server stores, and since when
//! it is held. These functions have no async form.

use crate::support::{Server, eventually};

use luagate::admin::{self, Kind, Name};
use luagate::{Gate, Lease};
use std::time::Duration;

/// The names that a gate finds, sorted.
fn names(gate: &Gate) -> Vec<String> {
    let mut names: Vec<String> = admin::names(gate).unwrap().map(|name| name.unwrap().to_string()).collect();
    names.sort();
    names
}

#[test]
fn each_stored_name_is_found_once_with_its_kind() {
    let server = Server::any();
    let gate = server.gate();
    assert_eq!(names(&gate), [""; 0]);
    // More than the keys of one step.
    for n in 0..400 {
        gate.stored_semaphore(&format!("many:{n}")).resize(1).unwrap();
    }
    let permits =
        [gate.semaphore("both", 2).acquire().unwrap(), gate.semaphore("{group}:a", 2).acquire().unwrap()];
    let (mutex, writer) = (gate.mutex("both").lock().unwrap(), gate.rwlock("lock").write().unwrap());
    gate.latch("latch", 2).count_down().unwrap();
    let other = Gate::builder(&server.url).prefix(&format!("{}:other", server.prefix)).open().unwrap();
    let others = other.mutex("of-another-prefix").lock().unwrap();
    let mut expected: Vec<String> = (0..400).map(|n| format!("semaphore many:{n}")).collect();
    expected
        .extend(["semaphore both", "semaphore {group}:a", "mutex both", "rwlock lock"].map(str::to_owned));
    expected.sort();
    assert_eq!(names(&gate), expected);
    assert_eq!(names(&other), ["mutex of-another-prefix"]);
    for permit in permits {
        permit.release().unwrap();
    }
    mutex.release().unwrap();
    writer.release().unwrap();
    others.release().unwrap();
}

#[test]
fn a_name_of_each_kind_is_inspected_and_revoked() {
    let server = Server::any();
    let gate = server.gate();
    let named = |kind| admin::semaphore(&gate, &Name { name: "a".to_owned(), kind });
    let held = gate.semaphore("a", 3).acquire_many(2).unwrap();
    let (mutex, writer) = (gate.mutex("a").lock().unwrap(), gate.rwlock("a").write().unwrap());
    let usage =
        Kind::ALL.iter().map(|kind| named(*kind).inspect().map(|state| (state.limit, state.in_use)).unwrap());
    let usage: Vec<_> = usage.collect();
    assert_eq!(usage, [(Some(3), 2), (Some(1), 1), (Some(i32::MAX as u32), i32::MAX as u32)]);
    for (kind, id) in [(Kind::Semaphore, held.id()), (Kind::Mutex, mutex.id()), (Kind::RwLock, writer.id())] {
        assert_eq!(named(kind).revoke(id).unwrap(), luagate::Revoked::Held);
        assert_eq!(named(kind).inspect().unwrap().in_use, 0);
    }
}

#[test]
fn an_age_counts_from_the_grant_and_from_joining_the_line() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("a", 1).lease(Lease::fixed(Duration::from_secs(60)));
    let held = semaphore.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire().unwrap().release().unwrap());
        eventually("a waiter", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        eventually("200 ms have passed", || {
            let state = semaphore.inspect().unwrap();
            let (holder, waiter) = (state.holders[0].age, state.waiters[0].age);
            assert!(holder >= waiter, "{state:?}");
            (waiter >= Duration::from_millis(200)).then_some(())
        });
        held.refresh().unwrap();
        assert!(
            semaphore.inspect().unwrap().holders[0].age >= Duration::from_millis(200),
            "a refresh is no new grant"
        );
        held.release().unwrap();
        waiter.join().unwrap();
    });
    let again = semaphore.acquire().unwrap();
    assert!(semaphore.inspect().unwrap().holders[0].age < Duration::from_secs(10));
    again.release().unwrap();
}

#[test]
fn a_plain_command_has_the_reply_or_the_error_of_the_server() {
    let server = Server::any();
    let masters = admin::masters(&server.gate()).unwrap();
    let [master] = &masters[..] else { panic!("{masters:?}") };
    assert_eq!(
        master.command(&luagate::redis::cmd("PING")).unwrap(),
        luagate::redis::Value::SimpleString("PONG".into())
    );
    let error = master.command(&luagate::redis::cmd("NO-SUCH-COMMAND")).unwrap_err();
    assert!(matches!(&error, luagate::errors::CallError::Failed(_)), "{error:?}");
    assert!(error.to_string().contains("unknown command"), "{error}");
}
