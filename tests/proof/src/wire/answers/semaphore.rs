//! The calls to one semaphore, and to several.

use super::exchange::Wire;
use super::wrong::{refuse, text};
use crate::protocol::call::Call;
use crate::protocol::keys::Keys;
use crate::protocol::semaphore::{
    Acquire, AcquireAnswer, Ask, AskOne, Inspect, Lookup, Refresh, Release, Resize, TryAcquireSeveral,
    TryAcquireSeveralAnswer,
};
use crate::protocol::value::Value;

/// The server's clock, which does not advance, in ms.
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
    inspect(wire, 99, 10, "K 99 10"); // the boundaries between numbers of digits
}

/// The optional arguments: a bound on the line, and a minimum hold.
pub(super) fn with_bounds(wire: &mut Wire) {
    wire.keys = "3 app:semaphore:{b} app:semaphore.holders:{b} app:semaphore.queue:{b}";
    let keys = &Keys::semaphore("app", "b").unwrap();
    let acquire = |wire: &mut Wire, id, wait_ms, max_waiting, at_least_ms, words| {
        let ask = Ask { id, limit: 2, lease_ms: 9, wait_ms, max_waiting, at_least_ms, ..Ask::default() };
        wire.call("semaphore/acquire", Acquire { keys, ask }, words);
    };
    acquire(wire, "ann", 0, 0, 40, "K ann 1 2 9 0 '' 0 0 40"); // granted, for 40 ms
    acquire(wire, "bob", 0, 0, 0, "K bob 1 2 9 0 '' 0");
    acquire(wire, "cid", 15_000, 1, 0, "K cid 1 2 9 15000 '' 0 1"); // queued
    acquire(wire, "dan", 15_000, 1, 40, "K dan 1 2 9 15000 '' 0 1 40"); // denied: the line is full
    let (refresh, release) = ("semaphore/refresh", "semaphore/release");
    wire.call(refresh, Refresh { keys, id: "ann", lease_ms: 9, fence: None }, "K ann 9"); // still for 40 ms
    wire.call(release, Release { keys, id: "ann", keep: 0, fence: None }, "K ann 0");
    wire.call("semaphore/inspect", Inspect { keys, offset: 1, count: 1 }, "K 1 1"); // cooling down
}

pub(super) fn several(wire: &mut Wire) {
    wire.keys = "6 app:semaphore:{t}:a app:semaphore.holders:{t}:a app:semaphore.queue:{t}:a \
                 app:mutex:{t}:b app:mutex.holders:{t}:b app:mutex.queue:{t}:b";
    let (a, b) = (Keys::semaphore("app", "{t}:a").unwrap(), Keys::mutex("app", "{t}:b").unwrap());
    let many =
        |permits| [AskOne { keys: &a, permits, limit: 3, lease_ms: 9, at_least_ms: 40 }, AskOne::mutex(&b)];
    let (two, four) = (many(2), many(4));
    let all = |id| TryAcquireSeveral { id, asked: &two };
    let acquired = |wire: &mut Wire, call, words| wire.call("semaphore/try_acquire_several", call, words);
    acquired(wire, all("ann"), "K ann 2 3 9 40 1 1 30000 0"); // granted
    acquired(wire, all("ann"), "K ann 2 3 9 40 1 1 30000 0"); // held
    acquired(wire, all("bob"), "K bob 2 3 9 40 1 1 30000 0"); // denied, for the first
    acquired(wire, TryAcquireSeveral { id: "bob", asked: &four }, "K bob 4 3 9 40 1 1 30000 0"); // above_limit
    wire.server.with_store(|store| store.set_micros(store.micros() + 50_000));
    acquired(wire, all("bob"), "K bob 2 3 9 40 1 1 30000 0"); // denied, for the second

    let row = |permits, fence, end| Value::Array([permits, fence, end, 1, 3].map(Value::Int).to_vec());
    let good = row(2, 1, -1);
    let reply = |rows: &[&Value]| {
        let rows = Value::Array(rows.iter().map(|&row| row.clone()).collect());
        Value::Array(vec![text("granted"), Value::Int(NOW), rows])
    };
    let Ok(TryAcquireSeveralAnswer::Granted(grants)) =
        all("bob").answer(reply(&[&good, &row(1, 7, NOW + 1)]))
    else {
        panic!("not granted");
    };
    let left = |place: usize| grants[place].0.left().map(|left| left.as_millis());
    assert_eq!([left(0), left(1)], [None, Some(1)]);
    assert_eq!([grants[0].0.permits, grants[1].0.permits], [2, 1]);
    refuse(&all("bob"), reply(&[&good]));
    refuse(&all("bob"), reply(&[&good, &good, &good]));
    refuse(&all("bob"), reply(&[&good, &row(0, 1, -1)]));
    refuse(&all("bob"), reply(&[&good, &row(1, 0, -1)]));
    refuse(&all("bob"), reply(&[&good, &row(1, 1, NOW)]));
    let line = Value::Array([1, 3, 0].map(Value::Int).to_vec());
    let denied = |index, lines| {
        let lines = Value::Array(vec![line.clone(); lines]);
        Value::Array(vec![
            text("denied"),
            Value::Int(index),
            Value::Int(9),
            Value::Int(NOW),
            lines,
            Value::Int(0),
        ])
    };
    let above = |index| {
        Value::Array([vec![text("above_limit")], [index, 3, NOW, 0].map(Value::Int).to_vec()].concat())
    };
    for index in [1, 2] {
        assert!(all("bob").answer(denied(index, 2)).is_ok() && all("bob").answer(above(index)).is_ok());
    }
    for index in [0, 3] {
        refuse(&all("bob"), denied(index, 2));
        refuse(&all("bob"), above(index));
    }
    for lines in [1, 3] {
        refuse(&all("bob"), denied(1, lines));
    }
}

/// A grant must have at least one permit and a lease that has not ended and was asked for.
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
    let shortest = acquire(Some(1), 1);
    assert!(matches!(shortest.answer(reply("granted", [1, 7, 1])), Ok(AcquireAnswer::Granted(..))));
    refuse(&shortest, reply("granted", [1, 7, -1]));
    // A minimum hold extends a lease.
    let mut longer = acquire(Some(1), 30_000);
    longer.ask.at_least_ms = 40_000;
    for left in [30_000, 39_999, 40_001] {
        refuse(&longer, reply("granted", [1, 7, left]));
    }
    assert!(matches!(longer.answer(reply("granted", [1, 7, 40_000])), Ok(AcquireAnswer::Granted(..))));
    let refresh = Refresh { keys, id: "ann", lease_ms: 30_000, fence: None };
    let refreshed = |left| {
        let fields = [1, 7, NOW + left, NOW].map(Value::Int).to_vec();
        Value::Array([vec![text("refreshed")], fields].concat())
    };
    refuse(&refresh, refreshed(29_999));
    for left in [30_000, 40_000] {
        assert!(matches!(refresh.answer(refreshed(left)), Ok(Some(_))));
    }
    let held = acquire(Some(1), 30_000).answer(reply("held", [2, 7, 1]));
    assert!(matches!(held, Ok(AcquireAnswer::Held(grant, _)) if grant.left().unwrap().as_millis() == 1));
}
