//! Promise: loss is detected. If one of the three keys was evicted or was restored from an earlier time, granting is
//! suspended until the last known lease has ended. Then it continues.

use crate::support::raw::{Listener, Raw};
use crate::support::{self, Server};

use luagate::scripts::semaphore::{Answer, Ask, ReleaseAnswer};
use redis::Commands;

const LEASE: u64 = 400;

/// Asks until granted. Every denial must come before `end` and every grant after it.
#[track_caller]
fn assert_closed_until(raw: &mut Raw, end: u64) {
    let start = raw.server_ms();
    assert!(start < end, "the test came too late to see anything");
    let granted = support::eventually("granting continues", || {
        let asked = raw.server_ms();
        match raw.acquire(raw.ask("newcomer")) {
            Answer::Granted(grant, _) => Some(grant.now),
            Answer::Denied { usage, .. } => {
                assert_eq!(usage.in_use, usage.limit, "a suspended semaphore must report itself as full");
                // The upper bound on leases may exceed the last lease by an eighth.
                assert!(asked <= end + LEASE / 8, "still suspended {} ms after", asked - end);
                None
            }
            other => panic!("{other:?}"),
        }
    });
    assert!(granted >= end, "granted {} ms before the last lease ended", end - granted);
}

/// Creates two holders with a longer and a shorter lease, and two waiters. Returns the end of the longer lease.
fn in_use(raw: &mut Raw) -> u64 {
    raw.grant(Ask { lease_ms: LEASE / 2, ..raw.ask("short") });
    let end = raw.grant(Ask { lease_ms: LEASE, ..raw.ask("long") }).expires_at.unwrap();
    for id in ["w1", "w2"] {
        raw.queue(Ask { wait_ms: 60_000, inbox: "nobody", ..raw.ask(id) });
    }
    end
}

#[test]
fn granting_is_suspended_after_each_single_key_was_evicted() {
    let server = Server::any();
    for evicted in 0..3 {
        let mut raw = Raw::named(&server, &format!("evicted-{evicted}"), 2);
        let end = in_use(&mut raw);
        let key = raw.key_names()[evicted].clone();
        let _: () = raw.con.del(key).unwrap();
        assert_closed_until(&mut raw, end);
        assert_eq!(raw.in_use(), 1);
        raw.assert_released("newcomer");
        raw.grant(Ask { permits: Some(2), ..raw.ask("both") });
    }
}

#[test]
fn granting_is_suspended_after_two_keys_were_evicted_together() {
    let server = Server::any();
    for kept in 0..2 {
        let mut raw = Raw::named(&server, &format!("kept-{kept}"), 2);
        let end = in_use(&mut raw);
        for evicted in (0..3).filter(|k| *k != kept) {
            let key = raw.key_names()[evicted].clone();
            let _: () = raw.con.del(key).unwrap();
        }
        assert_closed_until(&mut raw, end);
    }
}

/// Restores an earlier value of a key.
fn restore(raw: &mut Raw, key: usize, dump: &Option<Vec<u8>>) {
    let name = raw.key_names()[key].clone();
    let _: () = raw.con.del(&name).unwrap();
    let dump = dump.as_ref().unwrap();
    redis::cmd("RESTORE").arg(name).arg(0).arg(dump).exec(&mut raw.con).unwrap();
}

#[test]
fn granting_is_suspended_after_the_holders_were_restored_from_an_earlier_time() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: LEASE / 4, ..raw.ask("before") });
    let old = raw.dump();
    raw.assert_released("before");
    // The number of holders is the same as before, so counting alone does not detect the loss.
    let end = raw.grant(Ask { lease_ms: LEASE, ..raw.ask("now") }).expires_at.unwrap();
    restore(&mut raw, 1, &old[1]);
    assert_closed_until(&mut raw, end);
}

#[test]
fn granting_is_suspended_after_the_meta_key_was_restored_from_an_earlier_time() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { lease_ms: LEASE / 4, ..raw.ask("before") });
    let old = raw.dump();
    let end = raw.grant(Ask { lease_ms: LEASE, ..raw.ask("now") }).expires_at.unwrap();
    restore(&mut raw, 0, &old[0]);
    assert_closed_until(&mut raw, end);
}

#[test]
fn granting_resumes_early_when_every_known_holder_has_released() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { lease_ms: 0, ..raw.ask("permanent") });
    raw.grant(raw.ask("leased"));
    let meta = raw.key_names()[0].clone();
    let _: () = raw.con.del(meta).unwrap();
    raw.assert_denied(raw.ask("newcomer"));
    assert!(raw.refresh("leased", 1_000).is_none(), "the number of its permits is unknown");
    raw.assert_released("leased");
    assert_eq!(raw.release("leased"), ReleaseAnswer::Gone);
    raw.assert_denied(raw.ask("newcomer"));
    raw.assert_released("permanent");
    raw.grant(Ask { permits: Some(2), ..raw.ask("newcomer") });
}

#[test]
fn waiters_are_granted_when_granting_resumes() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "reopened");
    let channel = inbox.channel.clone();
    let end = raw.grant(Ask { lease_ms: LEASE, ..raw.ask("holder") }).expires_at.unwrap();
    let holders = raw.key_names()[1].clone();
    let _: () = raw.con.del(holders).unwrap();
    let ask = Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("first") };
    let first = raw.queue(ask);
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("second") });
    let granted = support::eventually("the head gets granted", || match raw.acquire(Ask { ticket: first, ..ask }) {
        Answer::Granted(grant, _) => Some(grant),
        Answer::Queued { ticket, position: 1, .. } if ticket == first => None,
        other => panic!("{other:?}"),
    });
    assert!(granted.now >= end);
    raw.assert_released("first");
    assert_eq!(inbox.next_grant()[0], "second");
}

#[test]
fn a_pinned_limit_survives_the_loss_of_the_other_keys() {
    let server = Server::any();
    for evicted in 1..3 {
        let mut raw = Raw::named(&server, &format!("pinned-{evicted}"), 9);
        raw.resize(2, None);
        let end = in_use(&mut raw);
        let key = raw.key_names()[evicted].clone();
        let _: () = raw.con.del(key).unwrap();
        assert_closed_until(&mut raw, end);
        let state = raw.inspect();
        assert_eq!((state.limit, state.pinned), (2, true));
        assert_eq!(raw.ttls()[0], -1);
    }
}

#[test]
fn granting_is_suspended_if_the_meta_key_holds_foreign_data() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let meta = raw.key_names()[0].clone();
    let _: () = raw
        .con
        .hset(&meta, "the state", "\u{4} of somebody else") // of this layout version, according to its first byte
        .unwrap();
    raw.grant(raw.ask("holder"));
    raw.assert_denied(raw.ask("other"));
}

#[test]
fn leases_that_ended_before_the_loss_do_not_prolong_the_suspension() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(raw.ask("earlier"));
    raw.assert_released("earlier");
    let end = in_use(&mut raw);
    let holders = raw.key_names()[1].clone();
    let _: () = raw.con.del(holders).unwrap();
    assert_closed_until(&mut raw, end);
}

#[test]
fn every_script_detects_a_loss() {
    type First = fn(&mut Raw);
    let firsts: [(&str, First); 5] = [
        ("release of a stranger", |raw| drop(raw.keep("nobody", 0))),
        ("release of a waiter", |raw| drop(raw.keep("w1", 0))),
        ("partial release", |raw| drop(raw.keep("long", 1))),
        ("unpin", |raw| drop(raw.resize_result(0))),
        ("refresh", |raw| assert!(raw.refresh("nobody", 1_000).is_none())),
    ];
    let server = Server::any();
    for (n, (name, first)) in firsts.into_iter().enumerate() {
        for evicted in 0..3 {
            let mut raw = Raw::named(&server, &format!("{n}-{evicted}"), 2);
            let end = in_use(&mut raw);
            let key = raw.key_names()[evicted].clone();
            let _: () = raw.con.del(key).unwrap();
            first(&mut raw);
            // A caller that declares a higher limit is denied too.
            raw.limit = 9;
            println!("{name}, key {evicted}");
            assert_closed_until(&mut raw, end);
        }
    }
}

#[test]
fn holders_lost_again_during_a_suspension_do_not_end_it_early() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let end = in_use(&mut raw);
    let [_, holders, queue] = raw.key_names();
    let _: () = raw.con.del(queue).unwrap();
    raw.assert_denied(raw.ask("newcomer")); // the loss is detected here: suspended
    let _: () = raw.con.del(holders).unwrap();
    assert_closed_until(&mut raw, end);
}
