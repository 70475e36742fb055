//! The keeper, a held permit, an inbox and pending releases, each alone: when each acts, to the millisecond.

mod futures;
mod latches;
mod releases;
mod sentinels;
mod tries;
mod wait;
mod waits;

use crate::client::moment;
use crate::protocol::call::Call;
use crate::protocol::exchange::BATCH;
use crate::protocol::failure::{CallError, Failure};
use crate::protocol::held::{HeldPermit, HeldState, Identity};
use crate::protocol::inbox::{Inbox, MOST_GIVEN_UP, Mail, Mailbox, Received};
use crate::protocol::keeper::{Keeper, KeeperTask, Number};
use crate::protocol::keys::Keys;
use crate::protocol::kind::FailureKind;
use crate::protocol::lease::{Deadline, LeaseOptions, Moment};
use crate::protocol::release::{PendingRelease, ReleaseTarget};
use crate::protocol::semaphore::{Grant, Inspect, Lookup, Release};
use sha1_smol::Sha1;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

const FENCE: u64 = 7;
const RENEWAL: KeeperTask = KeeperTask::Renew(0);

/// A time of the machine, in ms.
fn at(ms: u64) -> Moment {
    moment(1_000_000 + ms * 1_000, 2_000_000_000 + ms * 1_000)
}

fn grant(now: u64, lease_ms: u64) -> Grant {
    Grant { permits: 1, fence: FENCE, expires_at: (lease_ms > 0).then_some(now + lease_ms), now }
}

fn held(lease_ms: u64, renewed: bool) -> HeldPermit {
    let keys = Keys::mutex("luagate", "m").unwrap();
    let lease = LeaseOptions { lease_ms, renewed, own_id: false, at_least_ms: 0 };
    let identity = Identity { keys, id: "id".to_owned(), fence: FENCE, lease };
    let grant = grant(0, lease_ms);
    HeldPermit::new(Arc::new(identity), &grant, Deadline::after(at(0), grant.left()))
}

fn keep(keeper: &mut Keeper, lease_ms: u64) -> Number {
    keeper.keep(held(lease_ms, true), 0, true, at(0))
}

/// In how many ms from 0 the next renewal or report is due.
fn next(keeper: &Keeper, task: KeeperTask) -> Option<u128> {
    let next = keeper.next(task)?;
    Some(next.saturating_duration_since(at(0).instant()).as_millis())
}

/// Whether a grant may still arrive for a wait that was given up.
fn remembers<W>(inbox: &Inbox<W>, now: Instant) -> bool {
    inbox.given_up.values().any(|wait| wait.until > now)
}

fn due(keeper: &mut Keeper, now: Moment) -> Vec<Number> {
    keeper.due(RENEWAL, now).unwrap_or_default()
}

fn left(held: &mut HeldPermit, now: u64) -> Option<u128> {
    held.remaining(at(now)).0.map(|left| left.as_millis())
}

/// Checks what each of them promises.
///
/// # Panics
/// If a promise is broken.
pub fn check() {
    renewals();
    hastened_renewals();
    unanswered_refreshes();
    failed_renewals();
    batches();
    losses();
    releases_without_a_permit();
    refreshes();
    leases();
    clocks();
    late_grants();
    forgotten_waits();
    shared_waits();
    mailboxes();
    releases::check();
    sentinels::check();
    tries::check();
    waits::check();
    latches::check();
    futures::check();
    first_leases();
    reads();
}

/// A call that only reads is made again if a release has overtaken it.
fn reads() {
    let keys = Keys::mutex("luagate", "m").unwrap();
    assert!(Inspect { keys: &keys, offset: 0, count: 0 }.only_reads());
    assert!(Lookup { keys: &keys, id: "id" }.only_reads());
    assert!(!Release { keys: &keys, id: "id", keep: 0, fence: None }.only_reads());
}

/// The first lease of a permit is never permanent, and not shorter than its minimum hold.
fn first_leases() {
    for (lease_ms, at_least_ms, first) in
        [(9, 0, 9), (9, 8, 9), (9, 10, 10), (0, 0, 30_000), (0, 30_001, 30_001)]
    {
        let lease = LeaseOptions { lease_ms, renewed: false, own_id: false, at_least_ms };
        assert_eq!(lease.first_lease_ms(), first);
    }
}

/// A permit is renewed after a third of its remaining lease, and never after renewal was stopped.
fn renewals() {
    let mut keeper = Keeper::default();
    let number = keep(&mut keeper, 3_000);
    assert_eq!(next(&keeper, RENEWAL), Some(999)); // a third of 2,999 ms
    assert_eq!(next(&keeper, KeeperTask::Report), Some(2_999));
    assert!(due(&mut keeper, at(998)).is_empty());
    assert_eq!(due(&mut keeper, at(1_000)), [number]);
    assert_eq!(next(&keeper, RENEWAL), None);
    keeper.renewed(number, Ok(Some((grant(1_000, 3_000), at(1_000)))), at(1_010)).unwrap();
    assert_eq!(next(&keeper, RENEWAL), Some(1_010 + 2_989 / 3));
    assert_eq!(next(&keeper, KeeperTask::Report), Some(3_999));
    // Its holder asks for a shorter lease.
    keeper.refreshing(number, 300, at(1_100));
    keeper.refreshed(number, 300, Ok(Some((grant(1_100, 300), at(1_100)))), at(1_100)).unwrap();
    assert_eq!(next(&keeper, RENEWAL), Some(1_100 + 299 / 3));
    keeper.refreshed(number, 3_000, Ok(Some((grant(1_100, 3_000), at(1_100)))), at(1_100)).unwrap();
    assert_eq!(
        keeper.remaining(number, at(1_100)),
        Some(Duration::from_millis(2_999)),
        "the shorter lease is confirmed"
    );
    keeper.stop_renewal(number);
    assert_eq!(next(&keeper, RENEWAL), None);
    keeper.renewed(number, Ok(Some((grant(1_100, 300), at(1_100)))), at(1_100)).unwrap();
    assert_eq!(next(&keeper, RENEWAL), None);
    let other = keep(&mut keeper, 3_000);
    keeper.change(other, HeldPermit::hand_on);
    assert_eq!(next(&keeper, RENEWAL), None);
    keeper.remove(number);
    assert_eq!(next(&keeper, KeeperTask::Report), None);
    assert!(keeper.is_lost(number, at(0)), "it is gone");
    // A permanent lease needs no renewal; the shortest lease does.
    let permanent = keep(&mut keeper, 0);
    assert_eq!((next(&keeper, RENEWAL), next(&keeper, KeeperTask::Report)), (None, None));
    assert!(!keeper.is_lost(permanent, at(0)));
    let brief = keep(&mut keeper, 1);
    assert_eq!(next(&keeper, RENEWAL), Some(0));
    keeper.remove(brief);
    assert_eq!(next(&keeper, RENEWAL), None);
}

/// After a reconnect all permits of the server are due, or the first ones of them. No renewal becomes later.
fn hastened_renewals() {
    let mut keeper = Keeper::default();
    let numbers = [3_000, 30_000, 60_000].map(|lease_ms| keep(&mut keeper, lease_ms));
    let elsewhere = keeper.keep(held(3_000, true), 1, true, at(0));
    let fixed = keeper.keep(held(3_000, false), 0, true, at(0));
    keeper.hasten(0, 1, at(100));
    assert_eq!(due(&mut keeper, at(100)), [numbers[0]]);
    keeper.hasten(0, 1, at(200));
    assert_eq!(due(&mut keeper, at(200)), [numbers[1]], "the first one that is planned");
    keeper.renewed(numbers[0], Ok(Some((grant(200, 3_000), at(200)))), at(200)).unwrap();
    keeper.hasten(0, usize::MAX, at(300));
    assert_eq!(due(&mut keeper, at(300)), [numbers[0], numbers[2]]);
    assert_eq!(next(&keeper, KeeperTask::Renew(1)), Some(999), "of another server");
    keeper.hasten(1, usize::MAX, at(2_000));
    assert_eq!(next(&keeper, KeeperTask::Renew(1)), Some(999), "it is due already");
    keeper.remove(elsewhere);
    keeper.remove(fixed);
    keeper.hasten(1, usize::MAX, at(2_000));
    assert_eq!(next(&keeper, KeeperTask::Renew(1)), None);
}

/// While a shorter lease is asked for, or if the reply is missing, the shorter lease may have begun.
fn unanswered_refreshes() {
    let mut keeper = Keeper::default();
    let number = keep(&mut keeper, 3_000);
    keeper.refreshing(number, 300, at(0));
    assert_eq!(keeper.remaining(number, at(0)), Some(Duration::from_millis(299)));
    let unknown = || CallError::Unknown(Failure::new(FailureKind::TimedOut, "no answer"));
    keeper.refreshed(number, 300, Err(unknown()), at(0)).unwrap_err();
    assert_eq!(keeper.remaining(number, at(0)), Some(Duration::from_millis(299)));
    assert_eq!(next(&keeper, KeeperTask::Report), Some(299));
    // It counts from when it was sent, also if its caller stops waiting much later. Of several, the first
    // counts.
    let number = keep(&mut keeper, 3_000);
    keeper.refreshing(number, 300, at(0));
    keeper.refreshing(number, 300, at(100));
    keeper.refreshed(number, 300, Err(unknown()), at(200)).unwrap_err();
    let unsent = CallError::Failed(Failure::new(FailureKind::Unreachable, "no server"));
    keeper.refreshed(number, 300, Err(unsent), at(200)).unwrap_err();
    assert_eq!(keeper.remaining(number, at(200)), Some(Duration::from_millis(99)));
    // The server ran a refresh that too few replicas confirmed, but not one that could not be sent.
    for (kind, left) in [(FailureKind::TooFewReplicas, 299), (FailureKind::Unreachable, 2_999)] {
        let number = keep(&mut keeper, 3_000);
        keeper.refreshing(number, 300, at(0));
        keeper
            .refreshed(number, 300, Err(CallError::Failed(Failure::new(kind, "too few"))), at(0))
            .unwrap_err();
        assert_eq!(keeper.remaining(number, at(0)), Some(Duration::from_millis(left)), "{kind:?}");
    }
    // The same applies to a renewal after a longer lease.
    let number = keep(&mut keeper, 3_000);
    keeper.refreshed(number, 60_000, Ok(Some((grant(0, 60_000), at(0)))), at(0)).unwrap();
    keeper.batch(&[number], at(0));
    assert_eq!(keeper.remaining(number, at(0)), Some(Duration::from_millis(2_999)));
    keeper.renewed(number, Err(unknown()), at(0)).unwrap_err();
    assert!(matches!(keeper.due(KeeperTask::Report, at(2_999)), Some(lost) if lost.is_empty()));
    assert!(keeper.take_losses().iter().any(|loss| loss.number == number), "its end is reported in time");
}

/// A failed renewal is retried after a tenth of the lease, at least 5 ms and at most 1 s, and not after the
/// end of the lease.
fn failed_renewals() {
    for (lease_ms, then, again) in [(600, 300, 360), (20, 8, 13), (30_000, 10_000, 11_000), (20, 17, 19)] {
        let mut keeper = Keeper::default();
        let number = keep(&mut keeper, lease_ms);
        due(&mut keeper, at(then));
        let failed = CallError::Failed(Failure::new(FailureKind::Unreachable, "no server"));
        keeper.renewed(number, Err(failed), at(then)).unwrap_err();
        assert_eq!(next(&keeper, RENEWAL), Some(again), "{lease_ms}");
    }
}

/// Permits due within 5 ms are renewed in the same batch, at most a hundred at a time. None is forgotten.
fn batches() {
    let mut keeper = Keeper::default();
    let first = keep(&mut keeper, 301);
    let (soon, later) = (keep(&mut keeper, 316), keep(&mut keeper, 319)); // 5 and 6 ms later
    assert_eq!(due(&mut keeper, at(100)), [first, soon]);
    assert_eq!(due(&mut keeper, at(106)), [later]);
    for _ in 0..250 {
        keep(&mut keeper, 3_000);
    }
    let sizes = [(); 4].map(|()| due(&mut keeper, at(1_000)).len());
    assert_eq!(sizes, [BATCH, BATCH, 50, 0]);
    // The client waits for the reply until the first of these leases ends, and at least 50 ms.
    let mut keeper = Keeper::default();
    let numbers = [5_000, 600, 5_000].map(|lease_ms| keep(&mut keeper, lease_ms));
    let (batch, until) = keeper.batch(&numbers, at(0));
    assert_eq!((batch.len(), until), (3, Some(at(599).instant())));
    let almost = keep(&mut keeper, 10);
    let (_, until) = keeper.batch(&[numbers[0], almost], at(0));
    assert_eq!(until, Some(at(50).instant()));
}

/// A loss is reported once, and to `on_lost` if it is set. The loss of a permit that is being released is not
/// reported.
fn losses() {
    let reported = |keeper: &mut Keeper| {
        let losses = keeper.take_losses();
        losses.iter().map(|loss| (loss.number, loss.is_new, loss.is_reported)).collect::<Vec<_>>()
    };
    let mut keeper = Keeper::default();
    let number = keep(&mut keeper, 600);
    assert!(!keeper.is_lost(number, at(598)));
    assert!(matches!(keeper.due(KeeperTask::Report, at(599)), Some(lost) if lost.is_empty()));
    assert_eq!(reported(&mut keeper), [(number, true, false), (number, false, true)]);
    assert!(keeper.is_lost(number, at(0)), "a lost permit stays lost");
    assert_eq!(reported(&mut keeper), []);
    let overtaken = keep(&mut keeper, 600);
    assert!(keeper.begin_release(overtaken, at(0))); // its release is on its way and reaches the server before a renewal
    let _ = keeper.renewed(overtaken, Ok(None), at(0));
    let _ = keeper.refreshed(overtaken, 600, Ok(None), at(0));
    assert_eq!(reported(&mut keeper), []);
    let lost = keep(&mut keeper, 600);
    keeper.renewed(lost, Ok(None), at(0)).unwrap_err();
    assert_eq!(reported(&mut keeper), [(lost, true, true)]);
    let by_holder = keep(&mut keeper, 600);
    keeper.refreshed(by_holder, 600, Ok(None), at(0)).unwrap_err();
    assert_eq!(reported(&mut keeper), [(by_holder, true, false)], "its holder knows");
    assert_eq!((next(&keeper, RENEWAL), next(&keeper, KeeperTask::Report)), (None, None));
}

/// A release that finds nothing shows a loss, unless an earlier call may have released the permit.
fn releases_without_a_permit() {
    // Earlier calls, and whether the server may have run each of them.
    for (earlier, repeated, is_loss) in [
        (&[][..], false, true),
        (&[true], false, false),
        (&[false, false], false, true),
        (&[true, false], false, false),
        (&[], true, false),
    ] {
        let mut keeper = Keeper::default();
        let number = keep(&mut keeper, 600);
        for may_have_run in earlier {
            assert!(keeper.begin_release(number, at(0)));
            if !may_have_run {
                keeper.change(number, HeldPermit::not_released);
            }
        }
        assert!(keeper.begin_release(number, at(0)));
        keeper.released(number, false, repeated);
        assert_eq!(keeper.take_losses().len(), usize::from(is_loss), "{earlier:?}, repeated: {repeated}");
        let state = if is_loss { HeldState::Gone } else { HeldState::Released };
        assert_eq!(keeper.held(number).map(|held| held.state), Some(state), "a copy may have released it");
        assert!(!keeper.begin_release(number, at(0)), "it is over");
    }
    let mut keeper = Keeper::default();
    let number = keep(&mut keeper, 600);
    assert!(keeper.begin_release(number, at(0)));
    keeper.released(number, true, false);
    assert_eq!(keeper.take_losses().len(), 0, "it is released");
    // The lease had ended before.
    for (released_at, state) in [(598, HeldState::Released), (599, HeldState::Gone)] {
        let mut keeper = Keeper::default();
        let number = keep(&mut keeper, 600);
        assert!(keeper.begin_release(number, at(released_at)));
        keeper.released(number, false, true);
        assert_eq!(keeper.held(number).map(|held| held.state), Some(state));
    }
    // A lost permit is released too: the server may count its lease longer. The call of an id that the
    // application chose names the fence, since another caller may hold with it by now.
    for own_id in [true, false] {
        let mut keeper = Keeper::default();
        let lease = LeaseOptions { lease_ms: 600, renewed: false, own_id, at_least_ms: 0 };
        let number = keeper.keep(held(600, false).under(lease), 0, false, at(0));
        assert!(keeper.is_lost(number, at(599)));
        assert!(keeper.begin_release(number, at(0)));
        let state = keeper.held(number).map(|held| held.state);
        assert_eq!(state, Some(HeldState::Lost { is_reported: true }), "its holder knows");
        assert_eq!(keeper.take_losses().len(), 1);
        assert_eq!(held(600, false).under(lease).identity.own_fence().is_some(), own_id);
    }
}

/// Refreshes whose replies are missing, or come in the ms of the grant.
fn refreshes() {
    // One refresh had no reply, and a later one with the same lease did: that one counts.
    let mut one = held(30_000, false);
    one.refreshing(2_000, at(300));
    one.refreshing(2_000, at(310));
    one.unanswered(2_000);
    assert_eq!(left(&mut one, 310), Some(1_989));
    one.answered(2_000);
    assert!(one.extend(&grant(310, 2_000), at(310), at(310)));
    assert_eq!(left(&mut one, 310), Some(1_999));
    let mut first = held(30_000, false);
    assert!(first.extend(&grant(0, 60_000), at(0), at(1)), "in the ms of the grant");
    assert_eq!(left(&mut first, 1), Some(59_998));
}

/// A lease counts from before the call, and never lasts longer than the server may count it.
fn leases() {
    let mut permit = held(30_000, false);
    assert_eq!(left(&mut permit, 0), Some(29_999));
    let mut other = grant(0, 60_000);
    other.fence = FENCE + 1;
    assert!(!permit.extend(&other, at(0), at(0)), "of another permit");
    // Executed at 200 for 20 s; afterwards arrives the reply of 150, for an hour.
    assert!(permit.extend(&grant(200, 20_000), at(200), at(200)));
    assert!(permit.extend(&grant(150, 3_600_000), at(150), at(200)));
    assert_eq!(left(&mut permit, 200), Some(19_999));
    assert!(permit.extend(&grant(200, 3_600_000), at(200), at(200)));
    assert_eq!(left(&mut permit, 200), Some(3_599_999));
    // Two that ran in the same ms, in an unknown order: the shorter one counts.
    let mut both = held(30_000, false);
    assert!(both.extend(&grant(200, 400), at(200), at(203)));
    assert!(both.extend(&grant(200, 30_000), at(200), at(204)));
    assert_eq!(left(&mut both, 204), Some(395));
    assert!(both.extend(&grant(200, 30_000), at(204), at(205)), "sent after the reply to the others");
    assert_eq!(left(&mut both, 205), Some(29_998));
    // A shorter lease counts from the moment when it is asked for. Without a reply it may have begun.
    permit.refreshing(0, at(300));
    permit.refreshing(1_000, at(300));
    assert_eq!(left(&mut permit, 300), Some(999));
    permit.answered(1_000);
    assert_eq!(left(&mut permit, 300), Some(3_599_899));
    permit.unanswered(0);
    permit.refreshing(2_000, at(300));
    permit.unanswered(2_000);
    assert_eq!(left(&mut permit, 300), Some(1_999));
    assert_eq!(left(&mut permit, 2_299), Some(0));
    assert!(!permit.extend(&grant(2_300, 60_000), at(300), at(300)), "the holder saw it as lost");
    let mut ended = held(30_000, false);
    ended.released(true, false);
    assert!(!ended.is_valid() && !ended.extend(&grant(0, 60_000), at(0), at(0)));
    assert_eq!(left(&mut ended, 0), Some(0));
    let mut past = held(1_000, false);
    assert!(!past.extend(&grant(1_000, 60_000), at(1_000), at(1_000)), "its end has passed");
    let mut handed_on = held(30_000, false);
    let lease = LeaseOptions { lease_ms: 30_000, renewed: true, own_id: false, at_least_ms: 0 };
    let mut renewed = handed_on.under(lease);
    assert_eq!((left(&mut handed_on, 0), left(&mut renewed, 0)), (Some(0), Some(29_999)));
    let mut permanent = held(0, false);
    assert_eq!([left(&mut permanent, 1_000_000), left(&mut permanent, 1_000_000)], [None; 2]);
    permanent.permits = 5;
    assert_eq!(permanent.permits, 5);
    // The same with the shortest lease.
    let mut brief = held(30_000, false);
    brief.refreshing(1, at(0));
    assert_eq!(left(&mut brief, 0), Some(0));
    let mut lost = held(30_000, false);
    assert_eq!([lost.lose(), lost.lose()], [(true, true), (false, false)]);
    assert!(!lost.is_valid());
    let lease = LeaseOptions { own_id: true, ..lost.identity.lease };
    assert_eq!(held(30_000, false).under(lease).identity.own_fence(), Some(FENCE));
}

/// The earlier of two ends counts, and the earlier of two clocks.
fn clocks() {
    let reported = |total: u64, ms| Deadline::after(moment(0, total), Some(Duration::from_millis(ms)));
    let earlier = reported(9_000_000, 5_001).earlier(reported(2_000_000, 9_001));
    let left = |mono, total| earlier.remaining(moment(mono, total)).map(|left| left.as_millis());
    assert_eq!(
        [left(0, 0), left(0, 10_000_000), left(4_000_000, 0)],
        [Some(5_000), Some(1_000), Some(1_000)]
    );
    assert!(!Deadline::after(at(0), None).is_past(at(1_000_000)));
}

/// The release that a message causes, if any: of which semaphore, which fence, and until when.
fn release_of(inbox: &mut Inbox<u8>, id: &str, secret: &str, fence: u64) -> Option<PendingRelease<()>> {
    let permits = u32::from(fence > 0);
    let text = format!("{id} {permits} {fence} 9000 1000");
    let signature = Sha1::from(format!("{secret}{text}")).digest();
    let message = format!("{text} {signature}");
    inbox.release_of(&Received::read(message.as_bytes()).unwrap(), at(100).instant())
}

/// A grant for a wait that was given up is released if it arrives within two minutes.
fn late_grants() {
    let [keys, others] = ["m", "other"].map(|name| Keys::mutex("luagate", name).unwrap());
    let mut inbox = Inbox::<u8>::default();
    let wait = |inbox: &mut Inbox<u8>, keys: &Keys, random: u128| {
        let mut secret = String::new();
        let make = |own: String| {
            secret.clone_from(&own);
            Arc::new(1)
        };
        let wait = inbox.add(keys, "id", Uuid::from_u128(random << 20), make);
        (wait, secret)
    };
    let (first, secret) = wait(&mut inbox, &keys, 1);
    let (first, second) = (first.unwrap(), wait(&mut inbox, &others, 2).0.unwrap());
    assert!(wait(&mut inbox, &keys, 3).0.is_none(), "it is already waiting");
    assert_eq!(inbox.of("id").len(), 2);
    let now = at(0).instant();
    assert!(inbox.give_up(now, &keys, "id").is_some());
    inbox.remove("id", &first);
    assert!(inbox.give_up(now, &keys, "id").is_none(), "no wait is in progress");
    let until = now + Duration::from_secs(120);
    assert!(remembers(&inbox, until - Duration::from_millis(1)) && !remembers(&inbox, until));
    assert!(release_of(&mut inbox, "id", &secret, 0).is_none(), "no grant");
    assert!(release_of(&mut inbox, "id", "another", FENCE).is_none(), "forged");
    let release = release_of(&mut inbox, "id", &secret, FENCE).expect("a release");
    let end = Some(at(8_100).instant()); // of the lease in the message
    assert!(release.is_own_id, "it may be used again");
    assert_eq!(
        (release.keys, release.target, release.until),
        (keys.clone(), ReleaseTarget::Fence(FENCE), end)
    );
    assert!(release_of(&mut inbox, "id", &secret, FENCE).is_none(), "once");
    let next = release_of(&mut inbox, "id", &secret, FENCE + 1).map(|release| release.target);
    assert_eq!(next, Some(ReleaseTarget::Fence(FENCE + 1)), "another call of the wait ran late");
    // A grant for a new wait of this id belongs to the new wait. After two minutes nothing is remembered.
    let (again, secret) = wait(&mut inbox, &keys, 4);
    inbox.give_up(now, &keys, "id");
    inbox.give_up(now, &others, "id");
    inbox.remove("id", &again.unwrap());
    inbox.remove("id", &second);
    assert!(inbox.of("id").is_empty());
    let own = wait(&mut inbox, &keys, 5).0.unwrap();
    assert!(release_of(&mut inbox, "id", &secret, FENCE).is_none(), "it is a different wait");
    assert!(remembers(&inbox, now), "the wait for the other semaphore");
    let earlier = inbox.give_up(until, &keys, "id").unwrap();
    assert_eq!(inbox.given_up.len(), 1, "the one for the other semaphore is over");
    let later = inbox.give_up(until, &keys, "id").unwrap();
    assert!(
        inbox.forget(earlier).is_none() && remembers(&inbox, until),
        "the later release is not confirmed"
    );
    assert!(inbox.forget(later).is_some());
    inbox.remove("id", &own);
    assert!(!format!("{inbox:?}").contains("\"id\""), "no wait is remembered");
}

/// A wait that was given up is forgotten when its release is confirmed. Of more than 10,000 the oldest are
/// forgotten.
fn forgotten_waits() {
    let keys = Keys::mutex("luagate", "m").unwrap();
    let mut inbox = Inbox::<u8>::default();
    let (now, mut secrets) = (at(0).instant(), Vec::new());
    let mut give_up = |inbox: &mut Inbox<u8>, number: u128| {
        let mut secret = String::new();
        let make = |own: String| {
            secret.clone_from(&own);
            Arc::new(1)
        };
        let (id, random) = (number.to_string(), Uuid::from_u128(number << 20));
        let wait = inbox.add(&keys, &id, random, make).unwrap();
        let given_up = inbox.give_up(now, &keys, &id).unwrap();
        inbox.remove(&id, &wait);
        secrets.push(secret);
        given_up
    };
    let first = give_up(&mut inbox, 1);
    assert!(inbox.forget(first).is_some() && inbox.forget(first).is_none(), "once");
    let count = MOST_GIVEN_UP as u128 + 2;
    for number in 2..=count {
        give_up(&mut inbox, number);
    }
    assert_eq!(inbox.given_up.len(), 10_000);
    let mut is_released =
        |number: usize| release_of(&mut inbox, &number.to_string(), &secrets[number - 1], FENCE).is_some();
    let released = [1, 2, 3, 10_002].map(&mut is_released);
    assert_eq!(released, [false, false, true, true]);
}

/// Any number of waits for the same latch; each is removed separately.
fn shared_waits() {
    let mut inbox = Inbox::<u8>::default();
    let waits = [1, 2].map(Arc::new);
    for wait in &waits {
        inbox.add_shared("latch", wait);
    }
    assert_eq!((inbox.of("latch").len(), inbox.all().count()), (2, 2));
    inbox.remove("latch", &waits[0]);
    assert_eq!(inbox.of("latch"), [waits[1].clone()]);
    assert!(inbox.of("another").is_empty());
}

/// The order: messages, cancellation, the end of the wait, the request to ask again.
fn mailboxes() {
    let signed = |secret: &str| {
        let text = "id 1 7 9000 1000";
        format!("{text} {}", Sha1::from(format!("{secret}{text}")).digest())
    };
    let put = |mailbox: &mut Mailbox, channel: &str, secret: &str| {
        mailbox.put(channel, &Received::read(signed(secret).as_bytes()).unwrap(), at(5))
    };
    let take = |mailbox: &mut Mailbox, now: u64| match mailbox.take(at(100).instant(), at(now).instant()) {
        Ok(Mail::Message { message, .. }) => format!("grant {}", message.fence),
        Ok(Mail::Called) => "called".to_owned(),
        Ok(Mail::Cancelled) => "cancelled".to_owned(),
        Ok(Mail::Timer) => "timer".to_owned(),
        Err(wakes) => format!("until {}", wakes.saturating_duration_since(at(0).instant()).as_millis()),
    };
    let mut mailbox = Mailbox::new(Some("secret".to_owned()));
    assert_eq!([mailbox.inbox(""), mailbox.inbox("channel")], ["", "channel#secret"]);
    assert_eq!(take(&mut mailbox, 0), "until 100");
    assert!(!put(&mut mailbox, "channel", "another") && put(&mut mailbox, "channel", "secret"));
    assert!(put(&mut mailbox, "channel", "secret"), "the same message again");
    let taken = [take(&mut mailbox, 0), take(&mut mailbox, 0), take(&mut mailbox, 100)];
    assert_eq!(taken, ["grant 7", "until 100", "timer"]);
    assert!(put(&mut mailbox, "before", "secret"), "from a server that had the semaphore before");
    assert_eq!([take(&mut mailbox, 0), take(&mut mailbox, 0)], ["called", "until 100"]);
    mailbox.called = true;
    assert_eq!([take(&mut mailbox, 0), take(&mut mailbox, 0)], ["called", "until 100"]);
    mailbox.called = true;
    assert_eq!(
        [take(&mut mailbox, 100), take(&mut mailbox, 0)],
        ["timer", "until 100"],
        "it asks again anyway"
    );
    mailbox.cancelled_at = Some(at(50).instant());
    assert_eq!([take(&mut mailbox, 49), take(&mut mailbox, 50)], ["until 50", "cancelled"]);
    let mut mailbox = Mailbox::new(None);
    assert_eq!(mailbox.inbox("channel"), "channel");
    assert!(!put(&mut mailbox, "channel", "any"), "the channel is shared with others");
    assert_eq!(take(&mut mailbox, 0), "called");
    mailbox.cancelled = true;
    assert_eq!(take(&mut mailbox, 100), "cancelled");
}
