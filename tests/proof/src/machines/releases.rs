//! Releases: which calls each one needs, where each is posted, which are sent together, when each is
//! repeated, and which calls wait for it.

use super::at;
use crate::call::SCRIPTS;
use crate::protocol::call::Packed;
use crate::protocol::exchange::RawReply;
use crate::protocol::failure::{CallError, Failure};
use crate::protocol::held::HeldPermit;
use crate::protocol::inbox::Inbox;
use crate::protocol::keys::Keys;
use crate::protocol::kind::FailureKind;
use crate::protocol::lease::{Deadline, LeaseOptions};
use crate::protocol::outbox::{Before, Next, Ordered, Outbox, OutboxWork, Post, may_go_on};
use crate::protocol::release::{LostCalls, PendingRelease, ReleaseCall, ReleaseTarget};
use crate::protocol::value::{Refusal, Value};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A connection. Those with a number from 100 on are closed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Connection(pub(super) u8);

fn is_open(connection: &Connection) -> bool {
    connection.0 < 100
}

/// Later calls use the current connection.
fn is_left(connection: &Connection) -> bool {
    *connection != CURRENT
}

/// The time when each of them expires, in ms.
const UNTIL: u64 = 100_000;

/// The connection on which later calls are sent.
const CURRENT: Connection = Connection(0);

/// Calls without an answer on these connections.
pub(super) fn lost(connections: &[u8]) -> LostCalls<Connection> {
    let mut lost = LostCalls::default();
    connections.iter().for_each(|number| lost.sent_on(Connection(*number)));
    lost
}

/// A release for a semaphore of this name, of an id that the application has chosen.
pub(super) fn pending(
    name: &str,
    id: &str,
    target: ReleaseTarget,
    calls: &[u8],
) -> PendingRelease<Connection> {
    let keys = Keys::mutex("luagate", name).unwrap();
    let (lost, until) = (lost(calls), Some(at(UNTIL).instant()));
    let longest = Duration::from_millis(UNTIL);
    PendingRelease { keys, id: id.to_owned(), target, is_own_id: true, lost, until, longest, given_up: None }
}

fn plain(name: &str, id: &str) -> PendingRelease<Connection> {
    PendingRelease { is_own_id: false, ..pending(name, id, ReleaseTarget::Whatever, &[]) }
}

/// A name of another length belongs to another server.
fn node_of(key: &[u8]) -> usize {
    key.len()
}

fn key(name: &str) -> String {
    Keys::mutex("luagate", name).unwrap().list()[0].to_owned()
}

/// An outbox, and the ids of its releases.
struct Queue {
    outbox: Outbox<Connection>,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { outbox: Outbox::new(&SCRIPTS) }
    }
}

impl Queue {
    /// Adds releases that cannot be posted.
    fn add(&mut self, releases: impl IntoIterator<Item = PendingRelease<Connection>>) {
        for release in releases {
            assert!(self.outbox.post(release, None, at(0).instant(), is_open).1.is_none());
        }
    }

    fn post(&mut self, release: PendingRelease<Connection>) -> Post<Connection> {
        self.outbox.post(release, Some(CURRENT), at(0).instant(), is_open).1.expect("it is posted")
    }

    fn id(&self, number: u64) -> String {
        self.outbox.entries.get(&number).map_or(String::new(), |entry| entry.release.id.clone())
    }

    /// The work of the gate's own thread: the server and the ids that are sent, or in how many ms from 0 the
    /// next ones are.
    fn work(&mut self, now: u64) -> Result<(usize, Vec<u64>), Option<u128>> {
        match self.outbox.next(at(now).instant(), node_of, is_open) {
            OutboxWork::Send(node, numbers) => Ok((node, numbers)),
            OutboxWork::Post(post) => Ok((usize::MAX, vec![post.number])),
            OutboxWork::Close(connection) => panic!("{connection:?} would be closed"),
            OutboxWork::At(end) => {
                Err(end.map(|end| end.saturating_duration_since(at(0).instant()).as_millis()))
            }
            OutboxWork::Closed => Ok((0, Vec::new())),
        }
    }

    fn next(&mut self, now: u64) -> Result<Vec<String>, Option<u128>> {
        let (node, numbers) = self.work(now)?;
        self.confirm(node, &numbers, now, false)
    }

    /// The same. The server confirms none of them.
    fn fails(&mut self, now: u64) -> Result<Vec<String>, Option<u128>> {
        let (node, numbers) = self.work(now)?;
        self.confirm(node, &numbers, now, true)
    }

    fn confirm(
        &mut self,
        node: usize,
        numbers: &[u64],
        now: u64,
        fails: bool,
    ) -> Result<Vec<String>, Option<u128>> {
        let ids = numbers.iter().map(|number| self.id(*number)).collect();
        if !fails {
            numbers.iter().for_each(|number| _ = self.outbox.confirm(*number, is_left));
        }
        self.outbox.unsent(numbers, Some(node), at(now).instant());
        Ok(ids)
    }

    fn before(&mut self, name: &str, own_id: Option<&str>, now: u64) -> String {
        self.looks(Ordered { key: key(name).as_bytes(), own_id, after: None, only_own: false }, now)
    }

    fn looks(&mut self, call: Ordered<'_>, now: u64) -> String {
        match self.outbox.before(call, at(now).instant(), is_open) {
            Before::Clear { floor: 0 } => "clear".to_owned(),
            Before::Clear { floor } => format!("above {floor}"),
            Before::Send { numbers, is_own } => {
                let ids: Vec<String> = numbers.iter().map(|number| self.id(*number)).collect();
                format!("sends {}{}", ids.join(" "), if is_own { ", own" } else { "" })
            }
            Before::Wait => "waits".to_owned(),
        }
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

fn refused(code: &str) -> Option<RawReply> {
    Some(Ok(Value::Error(Refusal::read(&format!("{code} refused")))))
}

pub(super) fn check() {
    steps();
    ends_of_permits();
    posted();
    unknown_scripts();
    lost_calls();
    silent_connections();
    unanswered_releases();
    closed_connections();
    late_calls();
    lost_lookups();
    failures();
    together();
    many();
    pauses();
    the_last();
    names();
    own_ids();
    drivers();
}

/// A fixed id is looked up, and released by its fence or ticket. If it was granted in between, both steps are
/// repeated.
fn steps() {
    let after = |target, replies: &[&str]| {
        let release = pending("m", "id", target, &[]);
        let mut steps = release.steps();
        let mut taken = vec![steps.next];
        for words in replies {
            release.answered(&mut steps, reply(words), |_| false).unwrap();
            taken.push(steps.next);
        }
        assert_eq!(release.call(&steps, &SCRIPTS).is_none(), steps.next == ReleaseCall::Nothing);
        taken
    };
    let (look_up, release, nothing) = (ReleaseCall::LookUp, ReleaseCall::Release, ReleaseCall::Nothing);
    let (held, queued, gone) = ("held 1 7 9000 1000", "queued 5 1 1000", "gone 1000");
    assert_eq!(after(ReleaseTarget::Whatever, &["gone"]), [release(None), nothing]);
    assert_eq!(after(ReleaseTarget::Fence(7), &["gone"]), [release(Some(7)), nothing]);
    assert_eq!(after(ReleaseTarget::Other(0), &[gone]), [look_up, nothing]);
    assert_eq!(
        after(ReleaseTarget::Other(0), &[held, "released 0 0 3"]),
        [look_up, release(Some(7)), nothing]
    );
    assert_eq!(
        after(ReleaseTarget::Other(6), &[held, "released 0 0 3"]),
        [look_up, release(Some(7)), nothing]
    );
    assert_eq!(after(ReleaseTarget::Other(7), &[held]), [look_up, nothing], "this permit stays");
    assert_eq!(after(ReleaseTarget::Other(0), &[queued, "cancelled"]), [look_up, release(Some(5)), nothing]);
    let twice = [look_up, release(Some(5)), look_up, release(Some(7)), nothing];
    assert_eq!(after(ReleaseTarget::Other(0), &[queued, "gone", held, "gone"]), twice);
    let release = pending("m", "id", ReleaseTarget::Other(0), &[]);
    let mut steps = release.steps();
    release.answered(&mut steps, reply("what"), |_| false).unwrap_err();
    assert_eq!(steps.next, look_up);
}

/// A permit is released until its lease has ended. A permanent permit has no end, even if it still has its
/// first lease; nor has one with a refresh that had no answer, since that may run at any time.
fn ends_of_permits() {
    let until = |held: &HeldPermit| {
        let release: PendingRelease<()> =
            PendingRelease::of_permit(&held.identity, held.longest(), at(5_000).instant());
        release.until.map(|until| until.saturating_duration_since(at(0).instant()).as_millis())
    };
    let refreshing = |lease_ms, refresh_ms| {
        let mut held = super::held(lease_ms, false);
        held.refreshing(refresh_ms, at(0));
        held
    };
    let answered = |refresh_ms| {
        let mut held = refreshing(3_000, refresh_ms);
        held.answered(refresh_ms);
        until(&held)
    };
    assert_eq!([3_000, 0].map(|lease_ms| until(&super::held(lease_ms, false))), [Some(8_000), None]);
    assert_eq!([1_000, 60_000, 0].map(answered), [Some(8_000), Some(65_000), None]);
    assert_eq!(until(&refreshing(3_000, 1_000)), None, "it may still run");
    let mut late = refreshing(3_000, 1_000);
    late.unanswered(1_000);
    assert_eq!(until(&late), None);
    // The same permit with other options.
    let lease = LeaseOptions { renewed: true, ..late.identity.lease };
    assert_eq!([refreshing(3_000, 1_000), late].map(|mut held| until(&held.under(lease))), [None; 2]);
    assert_eq!(until(&super::held(3_000, false).under(lease)), Some(8_000));
    // A permit with a minimum hold has a longer first lease, and no refresh ends it earlier.
    let first = Deadline::after(at(0), Some(Duration::from_secs(12)));
    let mut held = HeldPermit::new(super::held(400, false).identity, &super::grant(0, 12_000), first);
    held.refreshing(400, at(0));
    held.answered(400);
    assert_eq!(until(&held), Some(17_000));
    let mut held = super::held(3_000, false);
    assert!(held.extend(&super::grant(0, 60_000), at(0), at(0)));
    assert_eq!(until(&held), Some(65_000));
}

/// A release is posted, if one call is enough and there is a connection. Later calls of its name need not
/// wait. But an answer that is here before the reply to the release may be too early.
fn posted() {
    let mut it = Queue::default();
    let before = it.outbox.mark();
    let post = it.post(plain("m", "id"));
    assert_eq!((post.on, post.with_text, it.before("m", None, 0)), (CURRENT, false, "clear".to_owned()));
    let mark = it.outbox.mark();
    let overtaken =
        |it: &Queue| ["m", "other"].map(|name| it.outbox.is_overtaken(key(name).as_bytes(), mark));
    assert_eq!(overtaken(&it), [true, false]);
    assert!(!it.outbox.is_overtaken(key("m").as_bytes(), before), "it was posted after the call");
    let again = |it: &mut Queue| {
        it.looks(Ordered { key: key("m").as_bytes(), own_id: None, after: Some(mark), only_own: false }, 0)
    };
    assert_eq!(again(&mut it), "waits");
    let (number, copy) = (post.number, post.clone());
    let gone = it.outbox.answered(post, Some(Ok(reply("gone"))), at(0).instant(), is_open);
    assert!(matches!(gone, Next::Confirmed { found: false }));
    assert!(!it.outbox.is_empty(), "its answer is being handled");
    it.outbox.confirm(number, is_left);
    let once_more = it.outbox.answered(copy, Some(Ok(reply("released 0 0 3"))), at(0).instant(), is_open);
    assert!(matches!(once_more, Next::Confirmed { found: false }), "it is over");
    assert!(it.outbox.is_empty() && overtaken(&it) == [false, false]);
    assert_eq!(again(&mut it), "clear");
    let post = it.post(plain("m", "id"));
    let released = Some(Ok(reply("released 0 0 3")));
    assert!(matches!(
        it.outbox.answered(post, released, at(0).instant(), is_open),
        Next::Confirmed { found: true }
    ));
    // With a lookup, or without a connection, it is left to the gate's own thread.
    let mut it = Queue::default();
    assert!(
        it.outbox
            .post(pending("m", "id", ReleaseTarget::Other(0), &[]), Some(CURRENT), at(0).instant(), is_open)
            .1
            .is_none()
    );
    assert_eq!(it.next(0), Ok(vec!["id".to_owned()]));
}

fn with_text(call: &Packed) -> Vec<u8> {
    let mut packet = Vec::new();
    call.write_with_text(&mut packet);
    assert!(packet.windows(6).any(|word| word == b"\nEVAL\r"), "it has the text");
    packet
}

/// A server that does not know the script gets its text, once. A call that was sent meanwhile may have run
/// before.
fn unknown_scripts() {
    let mut it = Queue::default();
    let post = it.post(plain("m", "id"));
    let mark = it.outbox.mark();
    let Next::Post(post) = it.outbox.answered(post, refused("NOSCRIPT"), at(0).instant(), is_open) else {
        panic!("it is not posted again");
    };
    assert!(post.with_text && post.on == CURRENT);
    let by_sha1 = Post { with_text: false, ..post.clone() };
    assert_eq!([by_sha1.packet(), post.packet()], [by_sha1.call.by_sha1().to_vec(), with_text(&post.call)]);
    assert!(it.outbox.is_overtaken(key("other").as_bytes(), mark));
    // So may a call that was sent before it was posted again.
    let (mut another, mark, number) = (Queue { outbox: it.outbox.clone() }, it.outbox.mark(), post.number);
    let gone = another.outbox.answered(post.clone(), Some(Ok(reply("gone"))), at(0).instant(), is_open);
    assert!(matches!(gone, Next::Confirmed { .. }));
    another.outbox.confirm(number, is_left);
    assert!(another.outbox.is_overtaken(key("m").as_bytes(), mark));
    assert!(matches!(
        it.outbox.answered(post, refused("NOSCRIPT"), at(0).instant(), is_open),
        Next::Due { .. }
    ));
    assert_eq!(it.next(0), Ok(vec!["id".to_owned()]));
}

/// Posts a release of lost calls on these connections.
fn posts(it: &mut Queue, numbers: &[u8]) -> Post<Connection> {
    let release = pending("m", "id", ReleaseTarget::Whatever, numbers);
    it.outbox.post(release, Some(CURRENT), at(0).instant(), is_open).1.unwrap()
}

/// A release follows the calls that it undoes, on the connection of each. An answer from elsewhere does not
/// confirm it.
fn lost_calls() {
    let gone = || Some(Ok(reply("gone")));
    let mut it = Queue::default();
    assert_eq!(posts(&mut it, &[]).on, CURRENT);
    assert_eq!(posts(&mut it, &[100]).on, CURRENT, "its call cannot run any more");
    let post = posts(&mut it, &[100, 2, 3]);
    assert_eq!(post.on, Connection(2));
    let Next::Post(post) = it.outbox.answered(post, gone(), at(0).instant(), is_open) else {
        panic!("another call may still run");
    };
    assert_eq!(post.on, Connection(3));
    assert!(matches!(it.outbox.answered(post, gone(), at(0).instant(), is_open), Next::Confirmed { .. }));
}

/// The server does not answer on the connection of a lost call. The release is also sent elsewhere, and once
/// more when that connection is closed.
fn silent_connections() {
    let mut it = Queue::default();
    let post = it.post(PendingRelease { lost: lost(&[2]), ..plain("m", "id") });
    assert_eq!(["another", "id"].map(|id| it.before("m", Some(id), 0)), ["clear", "waits"]);
    assert!(matches!(it.outbox.answered(post, None, at(0).instant(), is_open), Next::Due { closes: None }));
    assert_eq!(
        it.before("m", None, UNTIL),
        "sends id",
        "the lost call may still run, whatever its lease was"
    );
    it.outbox.unsent(&[1], None, at(UNTIL).instant());
    assert_eq!(it.next(UNTIL), Ok(vec!["id".to_owned()]));
    assert!(!it.outbox.is_empty() && !it.outbox.is_waited_for());
    assert_eq!(it.before("m", Some("id"), UNTIL), "clear");
    assert_eq!(it.next(UNTIL), Err(Some(u128::from(UNTIL) + 1_000)), "it looks every second");
    let closed = |_: &Connection| false;
    let last = UNTIL + 1_000;
    assert!(matches!(it.outbox.next(at(last).instant(), node_of, closed), OutboxWork::Send(..)));
    assert_eq!(it.before("m", None, last), "waits", "as for any other release");
    assert_eq!(it.confirm(node_of(key("m").as_bytes()), &[1], last, true), Ok(vec!["id".to_owned()]));
    assert!(it.outbox.is_waited_for());
    let mut another = Queue { outbox: it.outbox.clone() };
    assert_eq!(
        it.next(last + UNTIL - 1),
        Ok(vec!["id".to_owned()]),
        "its lease begins when the call may have run"
    );
    assert_eq!(another.next(last + UNTIL), Err(None));
    assert!(it.outbox.is_empty() && another.outbox.is_empty());
    // A gate that is dropped closes that connection at once, and a program that waits for all releases does
    // too.
    let mut it = Queue::default();
    let post = it.post(PendingRelease { lost: lost(&[2]), ..plain("m", "id") });
    assert!(matches!(it.outbox.answered(post, None, at(0).instant(), is_open), Next::Due { .. }));
    assert_eq!(it.outbox.silent(is_open), None, "its release is not confirmed elsewhere");
    let (node, numbers) = it.work(0).unwrap();
    assert!(it.outbox.sent(1, reply("gone")).unwrap().is_none());
    assert!(it.outbox.confirm(1, is_left).calls_worker, "it looks at this connection from now on");
    assert!(it.outbox.call(1).is_some(), "it can be sent once more");
    it.outbox.unsent(&numbers, Some(node), at(0).instant());
    assert_eq!(it.outbox.silent(is_open), Some(Connection(2)));
    assert_eq!(it.outbox.silent(closed), None);
    assert_eq!(it.next(0), Err(Some(1_000)));
    it.outbox.close(at(0).instant());
    assert!(matches!(it.outbox.next(at(0).instant(), node_of, is_open), OutboxWork::Close(Connection(2))));
    assert!(matches!(it.outbox.next(at(0).instant(), node_of, closed), OutboxWork::Send(..)));
}

/// The same for an id that will be used again, for calls on several connections, and after an error of the
/// server.
fn unanswered_releases() {
    let closed = |_: &Connection| false;
    // If the id will be used again, that connection is closed, so that the lost call does not run later.
    let mut it = Queue::default();
    let post = posts(&mut it, &[2]);
    assert!(matches!(
        it.outbox.answered(post, None, at(0).instant(), is_open),
        Next::Due { closes: Some(Connection(2)) }
    ));
    assert_eq!(it.before("m", Some("id"), 0), "waits", "it is not closed yet");
    assert!(matches!(it.outbox.next(at(0).instant(), node_of, closed), OutboxWork::Send(..)));
    assert!(it.outbox.confirm(1, is_left).given_up.is_none() && it.outbox.is_empty());
    // That connection has ended, or is not one of a lost call.
    for (connections, on) in [(&[2][..], Connection(102)), (&[], CURRENT)] {
        let mut it = Queue::default();
        let post = Post { on, ..posts(&mut it, connections) };
        it.outbox
            .entries
            .values_mut()
            .for_each(|entry| entry.release.lost = lost(if on == CURRENT { &[] } else { &[102] }));
        assert!(matches!(
            it.outbox.answered(post, None, at(0).instant(), is_open),
            Next::Due { closes: None }
        ));
    }
    // While another call is lost, it is posted behind that one.
    let mut it = Queue::default();
    let post = it.post(PendingRelease { lost: lost(&[2, 3]), ..plain("m", "id") });
    assert!(matches!(it.outbox.answered(post, None, at(0).instant(), is_open), Next::Due { .. }));
    assert_eq!(it.before("m", Some("id"), 0), "waits");
    let OutboxWork::Post(post) = it.outbox.next(at(0).instant(), node_of, is_open) else {
        panic!("it is not posted");
    };
    assert_eq!(post.on, Connection(3));
    // After an error of the server, the call has run, and the release goes to the server that has the key
    // now.
    let refused = it.outbox.answered(post, refused("READONLY"), at(0).instant(), is_open);
    assert!(matches!(refused, Next::Due { closes: None }));
    assert_eq!(it.before("m", None, 0), "sends id");
}

/// The connection of a lost call is closed.
fn closed_connections() {
    let closed = |_: &Connection| false;
    // A grant of a call on a closed connection may still be on its way, whatever is confirmed.
    let (mut inbox, keys) = (Inbox::default(), Keys::mutex("luagate", "m").unwrap());
    let _wait = inbox.add(&keys, "id", Uuid::from_u128(1), |_| Arc::new(())).unwrap();
    let given_up = inbox.give_up(at(0).instant(), &keys, "id");
    assert!(given_up.is_some());
    for (connection, is_kept) in [(2, true), (102, false)] {
        let mut it = Queue::default();
        let release = PendingRelease { given_up, lost: lost(&[connection]), ..plain("m", "id") };
        let post = it.post(release);
        let gone = it.outbox.answered(post, Some(Ok(reply("gone"))), at(0).instant(), is_open);
        assert!(matches!(gone, Next::Confirmed { .. }));
        assert_eq!(it.outbox.confirm(1, is_left).given_up.is_some(), is_kept);
    }
    // A call finds that it is closed by now.
    let mut it = Queue::default();
    let post = it.post(PendingRelease { lost: lost(&[2]), ..plain("m", "id") });
    assert!(matches!(
        it.outbox.answered(post, refused("READONLY"), at(0).instant(), is_open),
        Next::Due { .. }
    ));
    it.outbox.entries.values_mut().for_each(|entry| entry.release.lost = lost(&[2]));
    let name = key("m");
    let call = Ordered { key: name.as_bytes(), own_id: None, after: None, only_own: false };
    assert_eq!(it.outbox.before(call, at(0).instant(), is_open), Before::Clear { floor: 0 });
    let sends = Before::Send { numbers: vec![1], is_own: false };
    assert_eq!(it.outbox.before(call, at(0).instant(), closed), sends);
}

/// As long as a lost call may run, its release is not over: the lease begins when it runs.
fn late_calls() {
    let mut it = Queue::default();
    let post = posts(&mut it, &[2]);
    assert_eq!(it.before("m", Some("id"), UNTIL), "waits");
    let late = UNTIL + 1;
    let failed = it.outbox.answered(post, refused("READONLY"), at(late).instant(), is_open);
    assert!(matches!(failed, Next::Due { closes: None }));
    let mut another = Queue { outbox: it.outbox.clone() };
    assert_eq!(it.next(late + UNTIL - 1), Ok(vec!["id".to_owned()]));
    assert_eq!(another.next(late + UNTIL), Err(None));
}

/// A lookup behind a lost call.
fn lost_lookups() {
    let mut it = Queue::default();
    let look_up = pending("m", "id", ReleaseTarget::Other(0), &[2]);
    let post = it.outbox.post(look_up, Some(CURRENT), at(0).instant(), is_open).1.unwrap();
    let Next::Post(post) =
        it.outbox.answered(post, Some(Ok(reply("held 1 7 9000 1000"))), at(0).instant(), is_open)
    else {
        panic!("it does not release what it found");
    };
    assert_eq!((post.on, post.with_text), (Connection(2), false));
    // If that connection ends, it begins anew.
    it.outbox.entries.values_mut().for_each(|entry| entry.release.lost = lost(&[102]));
    assert!(matches!(it.outbox.answered(post, None, at(0).instant(), is_open), Next::Due { .. }));
    assert!(it.outbox.entries.values().all(|entry| entry.steps.next == ReleaseCall::LookUp));
    assert_eq!(it.next(0), Ok(vec!["id".to_owned()]));
}

/// A release that was posted and has failed makes the answers of later calls doubtful. One that was not
/// posted does not.
fn failures() {
    let mut it = Queue::default();
    let post = it.post(plain("m", "id"));
    let mark = it.outbox.mark();
    assert!(matches!(it.outbox.answered(post, None, at(0).instant(), is_open), Next::Due { .. }));
    assert!(it.outbox.is_overtaken(key("other").as_bytes(), mark));
    assert!(it.outbox.is_waited_for());
    let mark = it.outbox.mark();
    assert_eq!(it.fails(0), Ok(vec!["id".to_owned()]));
    assert!(!it.outbox.is_overtaken(key("m").as_bytes(), mark));
    // One that is confirmed after its connection was replaced may have run after a later call.
    for (on, is_overtaken) in [(CURRENT, false), (Connection(2), true)] {
        let mut it = Queue::default();
        let post = it.outbox.post(plain("m", "id"), Some(on), at(0).instant(), is_open).1.unwrap();
        let (number, mark) = (post.number, it.outbox.mark());
        let released = Some(Ok(reply("released 0 0 3")));
        let next = it.outbox.answered(post, released, at(0).instant(), is_open);
        assert!(matches!(next, Next::Confirmed { found: true }));
        it.outbox.confirm(number, is_left);
        assert_eq!(it.outbox.is_overtaken(key("m").as_bytes(), mark), is_overtaken);
    }
    let mut another = Queue::default();
    let post = another.post(plain("m", "id"));
    let answered = another.outbox.answered(post, refused("READONLY"), at(0).instant(), is_open);
    assert!(matches!(answered, Next::Due { closes: None }));
    assert_eq!(another.before("m", None, 0), "sends id");
    // While its server is paused, nobody has to look.
    let number = *it.outbox.entries.keys().next().unwrap();
    assert_eq!([49, 50].map(|now| it.outbox.waits(number, node_of, at(now).instant())), [true, false]);
    let behind = it.post(PendingRelease { lost: lost(&[2]), ..plain("m", "id") });
    assert!(!it.outbox.waits(behind.number, node_of, at(0).instant()), "it is posted on another connection");
}

/// Up to a hundred releases for one server are sent together, in order. A release with a lookup is sent
/// alone. A server gets the next ones after its reply.
fn together() {
    let mut it = Queue::default();
    let looked_up = pending("m", "looked up", ReleaseTarget::Other(0), &[]);
    it.add([plain("m", "first"), looked_up, plain("other", "of another server"), plain("m", "second")]);
    let (m, first) = it.work(0).unwrap();
    let (other, away) = it.work(0).unwrap();
    assert_eq!(it.work(0), Err(None));
    assert_eq!(it.confirm(m, &first, 0, false), Ok(vec!["first".to_owned(), "second".to_owned()]));
    assert_eq!(it.confirm(other, &away, 0, false), Ok(vec!["of another server".to_owned()]));
    it.add([plain("m", "third")]);
    assert_eq!(it.next(0), Ok(vec!["looked up".to_owned()]));
    assert_eq!(it.next(0), Ok(vec!["third".to_owned()]));
    it.add((0..250).map(|number| plain("m", &number.to_string())));
    assert_eq!([(); 3].map(|()| it.next(0).unwrap().len()), [100, 100, 50]);
    assert!(it.outbox.is_empty());
    // The same for a caller whose call they precede.
    it.add((0..150).map(|number| plain("m", &number.to_string())));
    assert_eq!(it.before("m", None, 0).split(' ').count(), 101);
    assert_eq!(it.before("m", None, 0).split(' ').count(), 51);
    assert_eq!(it.before("m", None, 0), "waits");
}

/// 10,000 permits of one name were dropped when their connection broke. They are sent by hundreds, and a call
/// of this name is sent after the last of them.
fn many() {
    let mut it = Queue::default();
    let posts: Vec<_> = (0..10_000).map(|number| it.post(plain("m", &number.to_string()))).collect();
    assert_eq!(it.before("m", None, 0), "clear", "they are posted on its connection");
    for post in posts {
        let next = it.outbox.answered(post, None, at(0).instant(), |_| false);
        assert!(matches!(next, Next::Due { closes: None }));
    }
    let released: Vec<usize> = std::iter::from_fn(|| {
        assert_eq!(it.before("other", None, 0), "clear");
        it.next(0).ok().map(|ids| ids.len())
    })
    .collect();
    assert_eq!(released, [100; 100]);
    assert_eq!(it.before("m", None, 0), "clear");
    assert!(it.outbox.is_empty());
}

/// A server without a reply is not called for 50 ms, then for twice as long, up to 1 s. Releases for other
/// servers do not wait for it.
fn pauses() {
    let mut it = Queue::default();
    let (here, away) = (plain("m", "here"), plain("away", "away"));
    it.add([away.clone()]);
    let mut now = 0;
    for pause in [50, 100, 200, 400, 800, 1_000, 1_000] {
        assert_eq!(it.fails(now), Ok(vec!["away".to_owned()]));
        assert_eq!(it.next(now), Err(Some(u128::from(now + pause))));
        it.add([here.clone()]);
        assert_eq!(it.next(now + pause - 1), Ok(vec!["here".to_owned()]));
        now += pause;
    }
    // The earlier of two counts. After a reply the delay begins anew.
    assert_eq!(it.next(now), Ok(vec!["away".to_owned()]));
    it.add([away.clone(), here.clone()]);
    for pending in [&away, &here] {
        assert_eq!(it.fails(now), Ok(vec![pending.id.clone()]));
        now += 10;
    }
    assert_eq!(it.next(now), Err(Some(u128::from(now - 20 + 50))));
}

/// An expired release is not sent. After its gate is gone, no release is sent after half a minute.
fn the_last() {
    let mut it = Queue::default();
    it.add([plain("m", "id")]);
    assert_eq!(it.next(UNTIL), Err(None));
    assert!(it.outbox.is_empty() && !it.outbox.is_closed());
    let closed = Ok(Vec::new());
    let permanent = |id: &str| PendingRelease { until: None, ..plain("m", id) };
    for (now, then) in [(29_999, Ok(vec!["permanent".to_owned()])), (30_000, closed.clone())] {
        let mut it = Queue::default();
        it.add([permanent("permanent")]);
        it.outbox.close(at(0).instant());
        assert!(it.outbox.is_closed());
        assert_eq!(it.next(now), then);
        assert_eq!(it.next(now), closed);
    }
    let mut it = Queue::default();
    let [first, second] = ["first", "second"].map(|id| it.post(plain("m", id)).number);
    it.outbox.close(at(0).instant());
    assert_eq!(it.next(0), Err(None), "two are posted");
    assert_eq!([first, second].map(|number| it.outbox.confirm(number, is_left).calls_worker), [false, true]);
    assert_eq!(it.next(0), closed);
}

/// A call sends the releases of its name that are due, and waits for those that are being sent.
fn names() {
    let mut it = Queue::default();
    it.add([plain("other", "id"), plain("m", "first")]);
    assert!(it.outbox.is_waited_for());
    it.outbox.add(plain("fourth", "unclaimed"));
    assert_eq!(it.before("fourth", None, 0), "sends unclaimed");
    it.outbox.confirm(3, is_left);
    assert_eq!(it.before("m", Some("another"), 0), "sends first");
    assert_eq!(it.before("m", None, 0), "waits");
    assert_eq!(it.before("third", None, 0), "clear");
    assert_eq!(it.before("other", None, UNTIL), "clear", "it has expired");
    it.outbox.unsent(&[2], None, at(0).instant());
    assert_eq!(it.before("m", None, 0), "sends first");
    it.outbox.confirm(2, is_left);
    assert_eq!(it.before("m", None, 0), "clear");
    assert!(!it.outbox.is_waited_for());
}

/// A call with an id of the application waits for the releases of this id. A permit whose release is posted
/// is not taken for a new one.
fn own_ids() {
    let mut it = Queue::default();
    let post = it.post(pending("m", "id", ReleaseTarget::Fence(7), &[]));
    it.post(pending("m", "id", ReleaseTarget::Fence(5), &[]));
    assert_eq!(["id", "another"].map(|id| it.before("m", Some(id), 0)), ["above 7", "clear"]);
    assert!(matches!(it.outbox.answered(post, None, at(0).instant(), is_open), Next::Due { .. }));
    assert_eq!(it.before("m", Some("id"), 0), "sends id, own");
    // Another release of the name has failed. The call still waits for those of its own id.
    let mut it = Queue::default();
    it.add([plain("m", "first"), pending("m", "id", ReleaseTarget::Other(0), &[])]);
    assert_eq!(it.before("m", Some("id"), 0), "sends first");
    it.outbox.unsent(&[1], None, at(0).instant());
    let name = key("m");
    let call = |id| Ordered { key: name.as_bytes(), own_id: Some(id), after: None, only_own: true };
    assert_eq!(it.looks(call("another"), 0), "clear");
    assert_eq!(it.looks(call("id"), 0), "sends id, own");
    let failed = |kind| CallError::Failed(Failure::new(kind, "failed"));
    let goes_on =
        |is_own| [FailureKind::ReadOnly, FailureKind::TimedOut].map(|kind| may_go_on(is_own, &failed(kind)));
    assert_eq!([false, true].map(goes_on), [[true, false], [false, false]]);
    // What a lookup finds is left to another release that names it.
    for (id, fence, ends) in [("id", 7, true), ("id", 8, false), ("another", 7, false)] {
        let mut it = Queue::default();
        it.post(pending("m", id, ReleaseTarget::Fence(fence), &[]));
        let number = it.outbox.send(pending("m", "id", ReleaseTarget::Other(0), &[]));
        assert_eq!(
            it.outbox.sent(number, reply("held 1 7 9000 1000")).unwrap().is_none(),
            ends,
            "{id} {fence}"
        );
    }
    // A lookup is alone.
    let mut it = Queue::default();
    it.add([pending("m", "id", ReleaseTarget::Other(0), &[]), plain("m", "second")]);
    assert_eq!(it.before("m", None, 0), "sends id");
    assert_eq!(it.before("m", None, 0), "sends second");
}

/// A release has one driver, which gets its calls one after the other.
fn drivers() {
    let mut it = Queue::default();
    let number = it.outbox.send(pending("m", "id", ReleaseTarget::Other(0), &[]));
    assert_eq!(it.next(0), Err(None), "another driver has it");
    assert_eq!(it.before("m", Some("id"), 0), "waits");
    assert!(it.outbox.call(number).is_some());
    it.outbox.sent(number, reply("what")).unwrap_err();
    assert!(it.outbox.sent(number, reply("held 1 7 9000 1000")).unwrap().is_some());
    assert!(it.outbox.sent(number, reply("released 0 0 3")).unwrap().is_none());
    assert!(it.outbox.call(number).is_none());
    it.outbox.unsent(&[number], None, at(0).instant());
    assert!(it.outbox.call(number).is_some(), "nobody has confirmed it, so it begins anew");
    assert_eq!(it.before("m", Some("id"), 0), "sends id, own");
    assert!(!it.outbox.confirm(number, is_left).calls_worker);
    it.outbox.unsent(&[number], None, at(0).instant());
    assert!(it.outbox.is_empty());
}
