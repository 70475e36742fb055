//! Promise: the times and counts in the texts for users are those of the code.

use crate::engine::ending::LONGEST_SILENCE;
use crate::engine::names::{KEPT, LOOK_UP};
use crate::engine::reading::{IDLE, TEST};
use crate::engine::server::SAME_FAILURE;
use crate::gate::LONGEST_FLUSH;
use crate::gate::builder::{OUTAGE, TIMEOUT};
use crate::lease::permits::LOOKS_EVERY;
use crate::semaphore::manage::LISTED;
use crate::several::MOST_SEMAPHORES;
use crate::wait::polled::{FEW, INTERVAL, UNPOLLED, UNPOLLED_OF_MANY};
use luagate_core::exchange;
use luagate_core::lease::{DEFAULT, SHORTEST_RENEWED};
use luagate_core::outbox::{self, LAST_RELEASES};
use luagate_core::waiter::{LAST_CALL, PATIENCE, RECHECK};
use std::path::Path;
use std::time::Duration;

/// A time as the texts write it.
fn said(time: Duration) -> String {
    if time.subsec_millis() == 0 {
        format!("{} s", time.as_secs())
    } else {
        format!("{} ms", time.as_millis())
    }
}

/// The text of a file on one line, without the marks of comments.
fn words_of(file: &str) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    text.split_whitespace().filter(|word| *word != "///").collect::<Vec<_>>().join(" ")
}

/// Asserts that each text contains the time, in place of `{}`.
#[track_caller]
fn assert_said(value: &str, places: &[(&str, &str)]) {
    for (page, phrase) in places {
        let file = if page.contains('/') { (*page).to_owned() } else { format!("src/guide/{page}.md") };
        let phrase = phrase.replace("{}", value);
        assert!(words_of(&file).contains(&phrase), "{file} does not say: {phrase}");
    }
}

#[test]
fn failures_and_connections() {
    let same = [
        ("production", "calls within {} get the same failure"),
        ("deployments", "calls within {} get the same failure"),
        ("faults", "those within {} after it, get the same failure"),
    ];
    assert_said(&said(SAME_FAILURE), &same);
    let look_up = [
        ("production", "The look-up of a host name comes before, and takes at most {}."),
        ("src/gate/builder.rs", "the host name is looked up, for at most {}."),
    ];
    assert_said(&said(LOOK_UP), &look_up);
    assert_said(&said(KEPT), &[("production", "Its result is used for at most {}.")]);
    assert_said(&said(IDLE), &[("production", "If a connection was idle for {}, a call first looks")]);
    assert_said(&said(LONGEST_SILENCE), &[("production", "for at most {}, beside the one that replaces it")]);
    assert_said(&said(TEST), &[("deployments", "After {} without a message the gate tests it")]);
    let timeouts = [
        ("getting_started", "| {} each | 1 ms to a day |"),
        ("production", "read_timeout)** ({}) must be longer"),
        ("production", "connect_timeout)** ({}): how long"),
        ("faults", "an error within the read timeout ({} unless set)"),
    ];
    assert_said(&said(TIMEOUT), &timeouts);
}

#[test]
fn waits() {
    let last_call = [
        ("production", "its last call takes at most {} more"),
        ("production", "too busy for these {}, the wait ends"),
    ];
    assert_said(&said(LAST_CALL), &last_call);
    let patience = [
        ("glossary", "without asking again, {} after its last call"),
        ("waiting_and_fairness", "it leaves the line after {} at the latest"),
        ("faults", "at once if its connections close with it, otherwise after {}"),
        ("faults", "if its turn comes within {} of its last call"),
        ("production", "the server removes it {} after"),
        ("production", "A waiter whose machine has failed is skipped after {}."),
    ];
    assert_said(&said(PATIENCE), &patience);
    let recheck = [
        ("waiting_and_fairness", "the subscription breaks | the waiter asks again within {}"),
        ("waiting_and_fairness", "if it is lost, the waiter asks within {}"),
        ("faults", "waiters ask within {}; holders notice"),
        ("production", "the waiter asks again within {} and gets its place back"),
        ("production", "Waiters ask the new master within {}."),
        ("production", "They ask again after {} at most."),
        ("deployments", "waiters ask the new master within {}"),
        ("lua/README.md", "and at most for {}."),
    ];
    assert_said(&said(RECHECK), &recheck);
    let outage = [
        ("getting_started", "how long waiters continue without a server | {} |"),
        ("waiting_and_fairness", "the waiter keeps asking for up to {} ([`outage_timeout`]"),
        ("waiting_and_fairness", "without a time limit; after an outage of {}"),
        ("faults", "Waits continue for {} ([`outage_timeout`]"),
        ("faults", "A wait in line goes on for {} ([`outage_timeout`]"),
        ("production", "outage_timeout)** ({}): how long"),
        ("src/gate/builder.rs", "while the server cannot be reached: {} by default"),
    ];
    assert_said(&said(OUTAGE), &outage);
}

#[test]
fn leases_and_releases() {
    let lease = [
        ("leases_and_fences", "| none | {} | yes | within {} |"),
        ("getting_started", "the permit ends with its lease, after at most {}"),
        ("locks", "**A lease of {}**, renewed"),
        ("production", "A lease that nobody renews ends by itself, by default within {}."),
    ];
    assert_said(&said(DEFAULT), &lease);
    assert_said(&said(SHORTEST_RENEWED), &[("leases_and_fences", "`d`: {} to 100 years | yes")]);
    assert_said(&said(DEFAULT / 3), &[("production", "after at most a third of its lease ({} by default)")]);
    let outage = DEFAULT * 2 / 3 - TIMEOUT;
    let defaults =
        format!("the read timeout: {{}} with the defaults of {} and {}", said(DEFAULT), said(TIMEOUT));
    assert_said(&said(outage), &[("production", &defaults)]);
    assert_said(
        &said(LOOKS_EVERY),
        &[("faults", "the gate looks every {} whether the server has closed its connection")],
    );
    let flush = [
        ("getting_started", "waits for at most {} until all releases are confirmed"),
        ("leases_and_fences", "waits for at most {} until all releases are confirmed"),
        ("production", "it waits for at most {} until all releases are confirmed"),
    ];
    assert_said(&said(LONGEST_FLUSH), &flush);
    assert_said(
        &said(LAST_RELEASES),
        &[("production", "If the gate is dropped, this continues for at most {},")],
    );
    assert_said(&said(outbox::FIRST_PAUSE), &[("production", "first after {}, later every second")]);
    assert_eq!(outbox::LONGEST_PAUSE, Duration::from_secs(1));
    assert_said(&exchange::BATCH.to_string(), &[("production", "up to {} in one packet")]);
}

#[test]
fn futures_that_are_not_polled() {
    let unpolled = [
        ("async_programs", "stops the wait {} after its future was woken"),
        ("async_programs", "are woken and not polled for {}, the machine is probably busy"),
        ("src/several.rs", "is woken but not polled for {}, the permits"),
    ];
    assert_said(&said(UNPOLLED), &unpolled);
    let interval = [("async_programs", "or up to {} later"), ("async_programs", "waits every {}.")];
    assert_said(&said(INTERVAL), &interval);
    let few = [
        ("async_programs", "If more than {} futures of a gate are woken"),
        ("async_programs", "it stops at most {} waits every"),
        ("src/several.rs", "If more than {} futures of the gate are not polled"),
    ];
    assert_said(&FEW.to_string(), &few);
    let many = [
        ("async_programs", "Then the gate waits for {}."),
        ("src/several.rs", "are not polled, this time is {}."),
    ];
    assert_said(&said(UNPOLLED_OF_MANY), &many);
}

#[test]
fn counts() {
    let most = [
        ("several_at_once", "takes 1 to {} semaphores"),
        ("src/several.rs", "no semaphore, more than {}, or"),
        ("lua/README.md", "acquires permits of 1 to {} semaphores"),
    ];
    assert_said(&MOST_SEMAPHORES.to_string(), &most);
    assert_eq!(LISTED, 1_000);
    assert_said("1,000", &[("semaphores", "returns the first {} holders and the first {} waiters")]);
}
