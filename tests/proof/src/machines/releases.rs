//! Unconfirmed releases: which calls each one needs, which are sent together, and when each is repeated.

use super::at;
use crate::protocol::held::HeldPermit;
use crate::protocol::keys::Keys;
use crate::protocol::lease::Deadline;
use crate::protocol::releases::{PendingRelease, ReleaseCall, ReleaseTarget, Releases, Settled, ToRelease};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;

/// The connection of a call whose reply is missing.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Connection(pub(super) u8);

/// The time when each of them expires, in ms.
const UNTIL: u64 = 100_000;

/// A release for a semaphore of this name.
pub(super) fn pending(
    name: &str,
    id: &str,
    target: ReleaseTarget,
    connection: Option<Connection>,
) -> PendingRelease<Connection> {
    let keys = Keys::mutex("luagate", name).unwrap();
    PendingRelease { keys, id: id.to_owned(), target, connection, until: Some(at(UNTIL).instant()), given_up: None }
}

pub(super) fn plain(name: &str, id: &str) -> PendingRelease<Connection> {
    pending(name, id, ReleaseTarget::Whatever, None)
}

/// A name of another length belongs to another server.
pub(super) fn node_of(pending: &PendingRelease<Connection>) -> usize {
    pending.keys.list()[0].len()
}

/// The ids that are sent now, or in how many ms from 0 the next ones are.
pub(super) fn next(releases: &mut Releases<Connection>, now: u64) -> Result<Vec<String>, Option<u128>> {
    match releases.next(at(now).instant(), node_of) {
        ToRelease::Now(_, batch) => Ok(batch.into_iter().map(|pending| pending.id).collect()),
        ToRelease::At(end) => Err(end.map(|end| end.saturating_duration_since(at(0).instant()).as_millis())),
        ToRelease::Closed => Ok(vec!["closed".to_owned()]),
    }
}

/// The reply of a script.
pub(super) fn reply(words: &str) -> Value {
    let words = words.split(' ').map(|word| match word.parse() {
        Ok(number) => Value::Int(number),
        Err(_) => Value::BulkString(word.as_bytes().to_vec()),
    });
    Value::Array(words.collect())
}

pub(super) fn check() {
    connections();
    steps();
    ends_of_permits();
    posted();
    together();
    pauses();
    the_last();
    names();
}

/// A release goes behind its call on the connection of that call, if this is open. Its wait is forgotten if the server
/// confirms it there, or if no call of the wait is without an answer.
fn connections() {
    let call = Connection(1);
    let given_up =
        |connection| PendingRelease { given_up: Some(3), ..pending("m", "id", ReleaseTarget::Whatever, connection) };
    let mut behind = given_up(Some(call));
    assert!(behind.take_connection(|connection| *connection == call) == (Some(call), Some(3)));
    assert!(behind.take_connection(|_| true) == (None, None), "it was not confirmed behind its call");
    let mut elsewhere = given_up(Some(call));
    assert!(elsewhere.take_connection(|_| false) == (None, None), "the connection has ended");
    let mut answered = given_up(None);
    for _ in 0..2 {
        assert!(answered.take_connection(|_| true) == (None, Some(3)));
    }
}

/// A fixed id is looked up, and released by its fence or ticket. If it was granted in between, both steps are repeated.
fn steps() {
    let after = |target, replies: &[&str]| {
        let mut steps = pending("m", "id", target, None).steps();
        let mut taken = vec![steps.next];
        for words in replies {
            steps.answered(reply(words)).unwrap();
            taken.push(steps.next);
        }
        assert_eq!(steps.call().is_none(), steps.next == ReleaseCall::Nothing);
        taken
    };
    let (look_up, release, nothing) = (ReleaseCall::LookUp, ReleaseCall::Release, ReleaseCall::Nothing);
    let (held, queued, gone) = ("held 1 7 9000 1000", "queued 5 1 1000", "gone 1000");
    assert_eq!(after(ReleaseTarget::Whatever, &["gone"]), [release(None), nothing]);
    assert_eq!(after(ReleaseTarget::Fence(7), &["gone"]), [release(Some(7)), nothing]);
    assert_eq!(after(ReleaseTarget::LookUp, &[gone]), [look_up, nothing]);
    assert_eq!(after(ReleaseTarget::LookUp, &[held, "released 0 0 3"]), [look_up, release(Some(7)), nothing]);
    assert_eq!(after(ReleaseTarget::LookUp, &[queued, "cancelled"]), [look_up, release(Some(5)), nothing]);
    let twice = [look_up, release(Some(5)), look_up, release(Some(7)), nothing];
    assert_eq!(after(ReleaseTarget::LookUp, &[queued, "gone", held, "gone"]), twice);
    let mut steps = pending("m", "id", ReleaseTarget::LookUp, None).steps();
    steps.answered(reply("what")).unwrap_err();
    assert_eq!(steps.next, look_up);
}

/// A permit is released until its lease has ended, also if a refresh without a reply has extended it. A permanent permit
/// has no end, even if it still has its first lease.
fn ends_of_permits() {
    let until = |lease_ms, refresh_ms: Option<u64>, latest| {
        let mut held = super::held(lease_ms, false);
        if let Some(ms) = refresh_ms {
            held.refreshing(ms, at(0));
            held.unanswered(ms);
        }
        let until = held.ends_by(at(latest).instant());
        until.map(|until| until.saturating_duration_since(at(0).instant()).as_millis())
    };
    assert_eq!(until(3_000, None, 5_000), Some(8_000));
    assert_eq!(until(3_000, Some(1_000), 5_000), Some(8_000));
    assert_eq!(until(3_000, Some(60_000), 5_000), Some(65_000));
    assert_eq!(until(3_000, Some(0), 5_000), None);
    assert_eq!(until(0, None, 5_000), None);
    assert_eq!(until(0, Some(1_000), 5_000), None);
    // A permit with a minimum hold has a longer first lease, and no refresh ends it earlier. The server may have run each call
    // long after it was sent.
    let first = Deadline::after(at(0), Some(Duration::from_secs(12)));
    let mut held = HeldPermit::new(super::held(400, false).identity, &super::grant(0, 12_000), first);
    held.refreshing(400, at(0));
    held.unanswered(400);
    assert_eq!(held.ends_by(at(10).instant()), Some(at(12_010).instant()));
    let mut held = super::held(3_000, false);
    assert!(held.extend(&super::grant(0, 60_000), at(0), at(0)));
    assert_eq!(held.ends_by(at(5_000).instant()), Some(at(65_000).instant()));
}

/// A call may have overtaken only releases of its own name that were sent before it.
fn posted() {
    let [one, other]: [Arc<str>; 2] =
        ["one", "other"].map(|name| Keys::mutex("luagate", name).unwrap().list()[0].into());
    let mut releases = Releases::<()>::default();
    for (number, key) in [(1, &one), (2, &other), (3, &one)] {
        releases.post(number, key);
    }
    let has = |releases: &Releases<()>, key: &Arc<str>| {
        [0, 1, 2, 3].map(|latest| releases.has_posted(key.as_bytes(), latest))
    };
    assert_eq!(has(&releases, &one), [false, true, true, true]);
    assert_eq!(has(&releases, &other), [false, false, true, true]);
    releases.answered(1); // not always the first one: each server answers its own in order
    assert_eq!(has(&releases, &one), [false, false, false, true]);
    releases.answered(3);
    releases.answered(3);
    assert!(has(&releases, &other)[2]);
    releases.answered(2);
    assert!(releases.posted.is_empty());
}

/// Up to a hundred releases for one server are sent together, in order. A release on an existing connection, or with a
/// lookup, is sent alone. A server gets the next ones after its reply.
fn together() {
    let mut releases = Releases::default();
    let replied = |releases: &mut Releases<Connection>, name: &str| {
        assert_eq!(next(releases, 0), Err(None));
        releases.sent(node_of(&plain(name, "")), vec![], at(0).instant());
    };
    let others = [
        pending("m", "behind", ReleaseTarget::Whatever, Some(Connection(1))),
        pending("m", "looked up", ReleaseTarget::LookUp, None),
        plain("other", "of another server"),
        plain("m", "second"),
    ];
    releases.add([plain("m", "first")]);
    releases.add(others);
    assert_eq!(next(&mut releases, 0), Ok(vec!["first".to_owned(), "second".to_owned()]));
    assert_eq!(next(&mut releases, 0), Ok(vec!["of another server".to_owned()]));
    replied(&mut releases, "other");
    replied(&mut releases, "m");
    for id in ["behind", "looked up"] {
        assert_eq!(next(&mut releases, 0), Ok(vec![id.to_owned()]));
        replied(&mut releases, "m");
    }
    releases.add((0..250).map(|number| plain("m", &number.to_string())));
    let sizes = [(); 3].map(|()| {
        let size = next(&mut releases, 0).unwrap().len();
        replied(&mut releases, "m");
        size
    });
    assert_eq!(sizes, [100, 100, 50]);
    assert!(releases.is_empty());
}

/// A server without a reply is not called for 50 ms, then for twice as long, up to 1 s. Releases for other servers do
/// not wait for it.
fn pauses() {
    let mut releases = Releases::default();
    let (here, away) = (plain("m", "here"), plain("away", "away"));
    releases.add([away.clone()]);
    let mut now = 0;
    for pause in [50, 100, 200, 400, 800, 1_000, 1_000] {
        assert_eq!(next(&mut releases, now), Ok(vec!["away".to_owned()]));
        releases.sent(node_of(&away), vec![away.clone()], at(now).instant());
        assert_eq!(next(&mut releases, now), Err(Some(u128::from(now + pause))));
        releases.add([here.clone()]);
        assert_eq!(next(&mut releases, now + pause - 1), Ok(vec!["here".to_owned()]));
        releases.sent(node_of(&here), vec![], at(now).instant());
        now += pause;
    }
    // The earlier of two counts. After a reply the delay begins anew.
    assert_eq!(next(&mut releases, now), Ok(vec!["away".to_owned()]));
    releases.sent(node_of(&away), vec![], at(now).instant());
    releases.add([away.clone(), here.clone()]);
    for pending in [&away, &here] {
        assert_eq!(next(&mut releases, now), Ok(vec![pending.id.clone()]));
        releases.sent(node_of(pending), vec![pending.clone()], at(now).instant());
        now += 10;
    }
    assert_eq!(next(&mut releases, now), Err(Some(u128::from(now - 20 + 50))));
}

/// An expired release is not sent. After its gate is gone, no release is sent after half a minute.
fn the_last() {
    let mut releases = Releases::default();
    releases.add([plain("m", "id")]);
    assert_eq!(next(&mut releases, UNTIL), Err(None));
    assert!(releases.is_empty());
    let closed = Ok(vec!["closed".to_owned()]);
    let permanent = |id: &str| PendingRelease { until: None, ..plain("m", id) };
    for (now, then) in [(29_999, Ok(vec!["permanent".to_owned()])), (30_000, closed.clone())] {
        let mut releases = Releases::default();
        releases.add([permanent("permanent")]);
        releases.close(at(0).instant());
        assert_eq!(next(&mut releases, now), then);
        releases.sent(node_of(&plain("m", "")), vec![], at(now).instant());
        assert_eq!(next(&mut releases, now), closed);
    }
}

/// A call waits for the releases of its name that have no reply. One behind a call on a connection of its own concerns
/// only a caller with the same id.
fn names() {
    let settle = |releases: &mut Releases<Connection>, name: &str, own_id: Option<&str>, now: u64| {
        let keys = Keys::mutex("luagate", name).unwrap();
        match releases.settle(keys.list()[0].as_bytes(), own_id, at(now).instant()) {
            Settled::Yes => "yes",
            Settled::After(pending) => {
                assert_eq!(pending.keys, keys);
                "after"
            }
            Settled::Soon => "soon",
        }
    };
    let mut releases = Releases::default();
    let behind = pending("m", "own", ReleaseTarget::Whatever, Some(Connection(1)));
    releases.add([plain("other", "id"), behind, plain("m", "first")]);
    assert_eq!(settle(&mut releases, "m", Some("another"), 0), "after");
    assert_eq!(settle(&mut releases, "m", None, 0), "yes");
    assert_eq!(settle(&mut releases, "m", Some("another"), 0), "yes");
    assert_eq!(settle(&mut releases, "m", Some("own"), 0), "after");
    assert_eq!(settle(&mut releases, "m", Some("own"), 0), "yes");
    assert_eq!(settle(&mut releases, "other", None, UNTIL), "yes", "it has expired");
    // Releases on their way.
    releases.add([plain("m", "first"), plain("m", "second")]);
    next(&mut releases, 0).unwrap();
    let asked = [("m", None), ("m", Some("second")), ("other", None)];
    assert_eq!(asked.map(|(name, own_id)| settle(&mut releases, name, own_id, 0)), ["soon", "soon", "yes"]);
    releases.sent(node_of(&plain("m", "first")), vec![], at(0).instant());
    assert_eq!(settle(&mut releases, "m", None, 0), "yes");
}
