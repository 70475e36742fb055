//! The calls to one semaphore, and to several mutexes.

use super::exchange::Wire;
use super::wrong::{refuse, text};
use crate::protocol::call::Call;
use crate::protocol::keys::Keys;
use crate::protocol::semaphore::{
    Acquire, Answer, Ask, Inspect, Lookup, Refresh, Release, Resize, TryAcquireAllAnswer, TryLockAll,
};
use redis::{ConnectionLike, Value};

/// The server's clock, which stands still, in ms.
const NOW: i64 = 1_577_836_800_000;

pub(super) fn one(wire: &mut Wire) {
    wire.keys = "3 app:semaphore:{s} app:semaphore.holders:{s} app:semaphore.queue:{s}";
    let keys = &Keys::semaphore("app", "s").unwrap();
    let ask = Ask { limit: 2, ..Ask::default() };
    let acquire = |id, permits, lease_ms| {
        let ask = Ask { id, permits, lease_ms, ..ask };
        Acquire { keys, ask }
    };
    let default = (ask.permits, Ask::default().limit, ask.lease_ms);
    assert_eq!(default, (Some(1), 0, 30_000));
    let acquired = |wire: &mut Wire, call, words| wire.call("semaphore/acquire", call, words);
    let refresh = |wire: &mut Wire, id, lease_ms, fence, words| {
        let call = Refresh { keys, id, lease_ms, fence };
        wire.call("semaphore/refresh", call, words);
    };
    let release = |wire: &mut Wire, id, keep, fence, words| {
        let call = Release { keys, id, keep, fence };
        wire.call("semaphore/release", call, words);
    };
    let lookup = |wire: &mut Wire, id, words| {
        wire.call("semaphore/lookup", Lookup { keys, id }, words);
    };
    let inspect = |wire: &mut Wire, offset, count, words| {
        let call = Inspect { keys, offset, count };
        wire.call("semaphore/inspect", call, words);
    };
    let resize = |wire: &mut Wire, limit, expected, words| {
        let call = Resize { keys, limit, expected };
        wire.call("semaphore/resize", call, words);
    };
    lookup(wire, "ann", "K ann"); // gone
    acquired(wire, acquire("ann", Some(1), 30_000), "K ann 1 2 30000 0 '' 0"); // granted
    acquired(wire, acquire("ann", Some(1), 30_000), "K ann 1 2 30000 0 '' 0"); // held
    acquired(wire, acquire("bob", Some(2), 9), "K bob 2 2 9 0 '' 0"); // denied
    acquired(wire, acquire("bob", Some(3), 9), "K bob 3 2 9 0 '' 0"); // above_limit
    let mut waits = acquire("bob", Some(2), 9);
    (waits.ask.wait_ms, waits.ask.inbox, waits.ask.ticket) = (15_000, "app:inbox:1#s", 7);
    acquired(wire, waits, "K bob 2 2 9 15000 app:inbox:1#s 7"); // queued
    lookup(wire, "bob", "K bob");
    lookup(wire, "ann", "K ann");
    inspect(wire, 0, 100, "K 0 100");
    release(wire, "bob", 0, Some(7), "K bob 0 7"); // cancelled
    refresh(wire, "ann", 40_000, None, "K ann 40000");
    refresh(wire, "ann", 9, Some(1), "K ann 9 1"); // lost
    refresh(wire, "ann", 0, None, "K ann 0");
    acquired(wire, acquire("cid", None, 0), "K cid all 2 0 0 '' 0");
    acquired(wire, acquire("bob", Some(1), 9), "K bob 1 2 9 0 '' 0"); // nothing expires
    release(wire, "ann", 0, None, "K ann 0");
    release(wire, "ann", 1, None, "K ann 1"); // gone
    resize(wire, 5, None, "K 5 -1");
    resize(wire, 9, Some(2), "K 9 2"); // unchanged
    inspect(wire, 1, 2, "K 1 2");
}

pub(super) fn several(wire: &mut Wire) {
    wire.keys = "6 app:mutex:{t}:a app:mutex.holders:{t}:a app:mutex.queue:{t}:a \
                 app:mutex:{t}:b app:mutex.holders:{t}:b app:mutex.queue:{t}:b";
    let mutex = |name| Keys::mutex("app", name).unwrap();
    let (a, b) = (mutex("{t}:a"), mutex("{t}:b"));
    let mutexes = &[&a, &b];
    let lock = |id, lease_ms| TryLockAll { mutexes, id, lease_ms };
    let locked = |wire: &mut Wire, call, words| wire.call("semaphore/try_lock_all", call, words);
    locked(wire, lock("ann", 30_000), "K ann 30000"); // granted
    locked(wire, lock("ann", 30_000), "K ann 30000"); // held
    locked(wire, lock("bob", 9), "K bob 9"); // denied, for the first
    let (id, keep, fence) = ("ann", 0, None);
    let release = Release { keys: &a, id, keep, fence }.pack();
    wire.server.req_packed_command(release.by_sha1()).unwrap();
    locked(wire, lock("bob", 9), "K bob 9"); // denied, for the second

    let row = |fence, end| Value::Array(vec![Value::Int(fence), Value::Int(end)]);
    let good = row(1, -1);
    let reply = |rows: &[&Value]| {
        let rows = Value::Array(rows.iter().map(|&row| row.clone()).collect());
        Value::Array(vec![text("granted"), Value::Int(NOW), rows])
    };
    let Ok(TryAcquireAllAnswer::Granted(grants)) = lock("bob", 9).answer(reply(&[&good, &good])) else {
        panic!("not granted");
    };
    assert!(grants.iter().all(|grant| grant.permits == 1));
    refuse(&lock("bob", 9), reply(&[&good]));
    refuse(&lock("bob", 9), reply(&[&good, &good, &good]));
    refuse(&lock("bob", 9), reply(&[&good, &row(0, -1)]));
    refuse(&lock("bob", 9), reply(&[&good, &row(1, NOW)]));
    for place in [0, 3] {
        let numbers = [place, 9, 1, 1, 0, NOW].map(Value::Int).to_vec();
        refuse(&lock("bob", 9), Value::Array([vec![text("denied")], numbers].concat()));
    }
}

/// Nobody holds nothing, or by a lease that has ended or that it did not ask for.
pub(super) fn grants_that_cannot_be() {
    let keys = &Keys::semaphore("app", "s").unwrap();
    let acquire = |permits, lease_ms| {
        let ask = Ask { permits, lease_ms, ..Ask::default() };
        Acquire { keys, ask }
    };
    let reply = |word: &str, [permits, fence, left]: [i64; 3]| {
        let end = if left < 0 { left } else { NOW + left };
        let fields = [permits, fence, end, NOW, 1, 2].map(Value::Int);
        Value::Array([vec![text(word)], fields.to_vec()].concat())
    };
    for (word, grant) in [
        ("granted", [1, 7, 29_999]),
        ("granted", [1, 7, -1]),
        ("granted", [2, 7, 30_000]),
        ("held", [0, 7, 30_000]),
        ("held", [1, 0, 30_000]),
        ("held", [1, 7, 0]),
    ] {
        refuse(&acquire(Some(1), 30_000), reply(word, grant));
    }
    refuse(&acquire(None, 0), reply("granted", [1, 7, 30_000]));
    let held = acquire(Some(1), 30_000).answer(reply("held", [2, 7, 1]));
    assert!(matches!(held, Ok(Answer::Held(grant, _)) if grant.left().unwrap().as_millis() == 1));
}
