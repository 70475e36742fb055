//! Promise: the keys of a latch exist for the requested life. A latch whose keys are gone starts again with
//! its count.

use super::{REPORTED, Raw, waiter};
use crate::own;
use crate::support::raw::Listener;
use crate::support::{Server, eventually};

use luagate::CountDownLatch;
use luagate::errors::{CallError, FailureKind, WaitError};
use luagate::scripts::LatchKeys;
use luagate::scripts::latch::{self, CountAnswer};
use redis::Commands;
use std::time::{Duration, Instant};

#[test]
fn with_full_memory_a_latch_opens_but_no_new_one_is_created() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let mut raw = Raw::new(&server, 3);
    let latch = gate.latch("raw", 3);
    let mut inbox = Listener::new(&server, "full");
    raw.wait_closed(15_000, &inbox.channel);
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut raw.con).unwrap();
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(2);
        assert_eq!(raw.count_down("a"), 2);
        assert_eq!(latch.count_down().unwrap(), 1);
        assert_eq!(raw.count_down("b"), 0);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(inbox.next()[1..4], ["0", "0", "0"]);
    for count in [1, 2] {
        let other = gate.latch("other", count);
        let Err(CallError::Failed(failure)) = other.count_down() else { panic!() };
        assert_eq!(failure.kind(), FailureKind::OutOfMemory);
        let Err(WaitError::Failed(failure)) = other.wait() else { panic!() };
        assert_eq!(failure.kind(), FailureKind::OutOfMemory);
    }
    assert_eq!(server.all_keys().len(), 1, "{:?}", server.all_keys());
}

#[test]
fn a_latch_lives_for_a_day_or_for_the_life_that_was_set() {
    let server = Server::any();
    let gate = server.gate();
    let mut con = server.connection();
    let mut life = |name: &str, latch: CountDownLatch| -> u64 {
        latch.count_down().unwrap();
        con.pttl(LatchKeys::new(&server.prefix, name).unwrap().list()[0]).unwrap()
    };
    let day = life("day", gate.latch("day", 1));
    assert!((86_390_000..=86_400_000).contains(&day), "{day}");
    let week = life("week", gate.latch("week", 1).life(Duration::from_secs(7 * 86_400)));
    assert!((604_790_000..=604_800_000).contains(&week), "{week}");
    // After its life the latch is a new one.
    let short = gate.latch("short", 1).life(Duration::from_millis(50));
    short.count_down().unwrap();
    eventually("the latch has expired", || (short.left().unwrap() == 1).then_some(()));
}

#[test]
fn an_evicted_latch_starts_again_and_its_waiters_keep_waiting() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let latch = server.gate().latch("raw", 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        let key = raw.key(0);
        let _: () = raw.con.del(key).unwrap();
        assert_eq!(raw.count_down("b"), 1, "it starts again: one of two has counted");
        assert_eq!(raw.count_down_again("b"), 1);
        assert!(!waiting.is_finished());
        assert_eq!(raw.count_down("a"), 0);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_deleted_latch_starts_again_with_the_next_declared_count() {
    let server = Server::any();
    let gate = server.gate();
    let (two, five) = (gate.latch("raw", 2), gate.latch("raw", 5));
    assert!(!two.delete().unwrap(), "there was none");
    assert_eq!(two.count_down_as("a").unwrap(), 1);
    assert!(two.delete().unwrap());
    assert!(!two.delete().unwrap(), "deleted already");
    assert_eq!(five.left().unwrap(), 5, "a count of the deleted latch remains");
    assert_eq!(five.count_down_as("a").unwrap(), 4);
    assert_eq!(two.left().unwrap(), 4);
    assert!(five.delete().unwrap());
    assert_eq!(gate.latch("raw", 1).count_down().unwrap(), 0);
    assert!(two.delete().unwrap(), "an open latch can be deleted too");
    let late = two.wait_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(late, WaitError::StillClosed(_)), "{late:?}");
}

#[test]
fn waiters_of_a_deleted_latch_ask_at_once_and_wait_for_the_new_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let latch = server.gate().latch("raw", 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        let start = Instant::now();
        assert!(latch.delete().unwrap());
        // There are no other clients: the waiter creates the new latch.
        eventually("the waiter asks", || {
            let answer = latch::count(&mut raw.con, &raw.keys).unwrap();
            matches!(answer, CountAnswer::Closed { left: 2, .. }).then_some(())
        });
        assert!(start.elapsed() < REPORTED, "{:?}", start.elapsed());
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        assert!(!waiting.is_finished(), "opened early");
        let start = Instant::now();
        assert_eq!(raw.count_down("b"), 0);
        let woken = waiting.join().unwrap().unwrap() - start;
        assert!(woken < REPORTED, "{woken:?}");
    });
}

#[test]
fn foreign_data_in_the_hash_does_not_count() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let key = raw.key(0);
    for state in ["of somebody else", "1 1 x", "1 1", "0 0 0"] {
        let fields = [("the state", state), ("a", ""), ("b", "")];
        let _: () = raw.con.hset_multiple(&key, &fields).unwrap();
        let answer = latch::count(&mut raw.con, &raw.keys).unwrap();
        assert!(matches!(answer, CountAnswer::None { .. }), "{answer:?}");
        assert_eq!(raw.count_down("a"), 1, "{state}");
        assert_eq!(raw.count_down("b"), 0, "{state}");
        assert!(raw.ttls()[0] > 0);
        let _: () = raw.con.del(&key).unwrap();
    }
}
