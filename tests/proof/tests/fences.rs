//! Promise: fences increase while the keys are there, whatever the clock shows. When the keys have expired,
//! the clock must not have been set back by more than a minute. The keys of a pinned limit never expire. A
//! ticket lifts the fences at most a minute above the clock, so the clock has passed them when the keys
//! expire.

use luagate_memory::Server;
use luagate_proof::call::Sent;
use luagate_proof::scripts::{Loaded, Scripts, words_of};

/// In 2033, in µs.
const START: i64 = 2_000_000_000_000_000;

const MS: i64 = 1_000;
const SECOND: i64 = 1_000 * MS;
const DAY: i64 = 86_400 * SECOND;

/// The lease of each grant, in ms.
const LEASE: &str = "1000";

/// For how long the keys are kept after a grant: for its lease and a minute.
const KEPT: i64 = 61 * SECOND;

/// A semaphore of limit 1, on a server whose clock the test moves.
struct Semaphore {
    server: Server,
    loaded: Loaded,
}

impl Semaphore {
    fn new() -> Semaphore {
        let mut server = Server::new().unwrap();
        let loaded = Scripts::read().load(&mut server).unwrap();
        let mut semaphore = Semaphore { server, loaded };
        semaphore.set_clock(0);
        semaphore
    }

    /// Sets the clock to this number of µs after the start of the test.
    fn set_clock(&mut self, after: i64) {
        self.server.with_store(|store| store.set_micros((START + after) as u64));
    }

    fn run(&mut self, script: &str, arguments: &[&str]) -> Vec<String> {
        let keys =
            ["semaphore", "semaphore.holders", "semaphore.queue"].map(|kind| format!("luagate:{kind}:{{m}}"));
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let sent = Sent { script: format!("semaphore/{script}"), keys: keys.to_vec(), arguments };
        words_of(&self.loaded.run(&mut self.server, &sent)).unwrap()
    }

    /// Acquires and releases. Returns the fence, in µs after the start of the test.
    fn fence(&mut self) -> i64 {
        let granted = self.run("acquire", &["alice", "1", "1", LEASE, "0", "", "0"]);
        assert_eq!(granted[0], "granted");
        assert_eq!(self.run("release", &["alice", "0", &granted[2]])[0], "released");
        granted[2].parse::<i64>().unwrap() - START
    }

    fn has_state(&mut self) -> bool {
        self.run("inspect", &["0", "0"])[0] != "0"
    }
}

#[test]
fn while_the_keys_are_there_fences_increase_though_the_clock_steps_back() {
    let mut semaphore = Semaphore::new();
    let first = semaphore.fence();
    semaphore.set_clock(-3_600 * SECOND);
    assert!(semaphore.has_state());
    assert_eq!(semaphore.fence(), first + 1);
}

#[test]
fn after_the_keys_have_expired_fences_increase_unless_the_clock_is_set_back_by_more_than_a_minute() {
    // (idle for, then set back by, whether the next fence is higher)
    for (idle, back, is_higher) in [
        (KEPT + MS, 60 * SECOND, true),
        (70 * SECOND, 65 * SECOND, true),
        (70 * SECOND, 75 * SECOND, false),
        (DAY, 2 * DAY, false),
    ] {
        let mut semaphore = Semaphore::new();
        let first = semaphore.fence();
        semaphore.set_clock(KEPT);
        assert!(semaphore.has_state(), "the keys last for a minute after the lease");
        semaphore.set_clock(idle);
        assert!(!semaphore.has_state(), "the keys have expired");
        semaphore.set_clock(idle - back);
        assert_eq!(semaphore.fence() > first, is_higher, "idle for {idle}, then back by {back}");
    }
}

#[test]
fn the_fences_of_a_pinned_limit_increase_whatever_the_clock_shows() {
    let mut semaphore = Semaphore::new();
    semaphore.run("resize", &["1", "-1"]);
    let first = semaphore.fence();
    semaphore.set_clock(DAY);
    assert!(semaphore.has_state());
    semaphore.set_clock(-DAY);
    assert_eq!(semaphore.fence(), first + 1);
}

#[test]
fn no_ticket_lifts_a_fence_so_far_that_the_clock_has_not_passed_it_when_the_keys_expire() {
    // How far the ticket is ahead of the clock, and its head start in ms.
    for (ahead, head_start) in
        [(60 * SECOND, "0"), (61 * SECOND, "0"), (365 * DAY, "0"), (SECOND, "86400000")]
    {
        let mut semaphore = Semaphore::new();
        semaphore.run("acquire", &["alice", "1", "1", LEASE, "0", "", "0"]);
        let ticket = (START + ahead).to_string();
        let queued =
            semaphore.run("acquire", &["bob", "1", "1", LEASE, "1000", "", &ticket, "0", "0", head_start]);
        assert_eq!(queued[0], "queued");
        semaphore.run("release", &["bob", "0"]);
        semaphore.run("release", &["alice", "0"]);
        let lifted = semaphore.fence();
        assert!(lifted <= 60 * SECOND + 1, "a ticket {ahead} ahead lifted the fence to {lifted}");
        semaphore.set_clock(KEPT + MS);
        assert!(!semaphore.has_state());
        assert!(semaphore.fence() > lifted);
    }
}
