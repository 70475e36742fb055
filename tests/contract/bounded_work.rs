//! Promise: a script makes a bounded number of calls, independent of the number of holders and waiters. If
//! work remains, a client is notified at once.

use crate::own;
use crate::support::raw::{Listener, Raw};
use crate::support::{Server, calls_in_scripts, reset_counts};

use luagate::scripts::semaphore::{AcquireAnswer, Ask};
use redis::Commands;

/// The maximum number of calls of one script: a hundred waiters granted or dropped, at four calls each, and
/// the calls before and after.
const BOUND: u64 = 500;

fn calls(raw: &mut Raw, run: impl FnOnce(&mut Raw)) -> u64 {
    reset_counts(&mut raw.con);
    run(raw);
    calls_in_scripts(&mut raw.con).0
}

#[test]
fn nine_thousand_expired_leases_are_freed_in_bounded_scripts() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 9_000);
    let mut last = 0;
    for n in 0..9_000 {
        last = raw.grant(Ask { lease_ms: 1_500, ..raw.ask(&format!("h{n}")) }).expires_at.unwrap();
    }
    raw.wait_until(last);
    assert_eq!(raw.in_use(), 0, "expired leases are not in use");
    let mut tries = 0;
    loop {
        tries += 1;
        let mut answer = None;
        let ask = Ask { permits: Some(9_000), ..raw.ask("all") };
        let count = calls(&mut raw, |raw| answer = Some(raw.acquire(ask)));
        assert!(count < BOUND, "{count} calls in one script");
        match answer {
            Some(AcquireAnswer::Granted(..)) => break,
            // Expired leases beyond the bound cause a denial for a moment, and the reply says when to ask
            // again.
            Some(AcquireAnswer::Denied { next_expiry: Some(1), .. }) => assert!(tries < 95),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn three_thousand_vanished_waiters_are_dropped_in_bounded_scripts() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let channel = Listener::new(&server, "alive").channel;
    raw.grant(raw.ask("holder"));
    for n in 0..3_000 {
        raw.queue(Ask { wait_ms: 600_000, inbox: "nobody:listens", ..raw.ask(&format!("w{n}")) });
    }
    let alive = Ask { wait_ms: 600_000, inbox: &channel, ..raw.ask("alive") };
    raw.queue(alive);
    let count = calls(&mut raw, |raw| raw.assert_released("holder"));
    assert!(count < BOUND, "{count} calls in one script");
    let mut asked = 0;
    while let AcquireAnswer::Queued { retry_after, .. } = raw.acquire(alive) {
        assert_eq!(retry_after, 1, "work remains, and no client was notified");
        asked += 1;
        assert!(asked <= 30);
    }
    assert!(raw.holds("alive"));
}

#[test]
fn many_holders_and_waiters_need_no_more_calls_than_few() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 5_000);
    let count = |raw: &mut Raw, id: &str| {
        let ask = Ask { permits: Some(1), ..raw.ask(id) };
        calls(raw, |raw| {
            raw.acquire(ask);
        })
    };
    let few = count(&mut raw, "first");
    for n in 0..4_000 {
        raw.grant(raw.ask(&format!("h{n}")));
    }
    let many = count(&mut raw, "last");
    assert!(many <= few, "{few} calls among few holders, {many} among many");
    let length: u64 = raw.con.zcard(raw.key_names()[1].clone()).unwrap();
    assert_eq!(length, 4_002);
}
