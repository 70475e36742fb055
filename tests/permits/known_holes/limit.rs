//! Promise: the limit is never exceeded, for any holders, releases and limit changes.

use super::MINUTE;
use crate::own;
use crate::support::raw::Raw;
use crate::support::{Server, eventually};

use luagate::errors::TryAcquireError;
use luagate::scripts::semaphore::{Answer, Ask, ReleaseAnswer};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn hole_04_the_identity_belongs_to_the_object() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("shared", 3);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let permit = semaphore.acquire_timeout(MINUTE).unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().unwrap();
            });
        }
    });
    assert!(most.into_inner() <= 3);
}

#[test]
fn hole_05_a_majority_of_masters_lets_three_in_under_a_limit_of_two() {
    // The result of majority voting: three callers each get two of three servers, and no server exceeds its limit of
    // two.
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
fn hole_06_unpacking_all_members_fails_near_8000() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 9_000);
    let mut end = 0;
    for n in 0..9_000 {
        end = raw.grant(Ask { lease_ms: 1_000, ..raw.ask(&format!("h{n}")) }).expires_at.unwrap();
    }
    raw.wait_until(end);
    raw.grant(raw.ask("next"));
    raw.assert_released("next");
    raw.resize(10, None);
    eventually("all permits are free", || {
        raw.try_acquire(Ask { permits: Some(10), ..raw.ask("ten") })
            .ok()
            .filter(|answer| matches!(answer, Answer::Granted(..)))
    });
}

#[test]
fn hole_13_a_smaller_limit_does_not_see_holders_in_higher_slots() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    for n in 0..5 {
        raw.grant(raw.ask(&format!("h{n}")));
    }
    raw.resize(1, None);
    for n in 0..4 {
        raw.assert_denied(Ask { limit: 1, ..raw.ask("next") });
        raw.assert_released(&format!("h{n}"));
    }
    raw.assert_denied(raw.ask("next"));
}

#[test]
fn hole_17_releasing_twice_mints_a_permit() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(raw.ask("a"));
    raw.grant(raw.ask("b"));
    raw.assert_released("a");
    assert_eq!(raw.release("a"), ReleaseAnswer::Gone);
    assert_eq!(raw.release("stranger"), ReleaseAnswer::Gone);
    assert_eq!(raw.in_use(), 1);
    raw.grant(raw.ask("c"));
    raw.assert_denied(raw.ask("d"));
}
