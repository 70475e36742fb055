use super::super::keys::Keys;
use super::super::lease::Deadline;
use super::*;
use std::time::SystemTime;

fn now() -> Moment {
    Moment::new(Instant::now(), SystemTime::now())
}

/// Keeps a permit that is renewed, and has a lease of so many ms from `now` on.
fn keep(keeper: &mut Keeper, lease_ms: u64, now: Moment) -> Number {
    let identity = Identity {
        keys: Keys::mutex("luagate", "m").unwrap(),
        id: "id".to_owned(),
        fence: 7,
        lease: LeaseOptions { lease_ms, renewed: true, own_id: false },
    };
    let grant = Grant { permits: 1, fence: 7, expires_at: Some(lease_ms), now: 0 };
    let deadline = Deadline::told(now, grant.left());
    let held = HeldPermit::new(Arc::new(identity), &grant, deadline);
    keeper.keep(held, 0, true, now)
}

#[test]
fn the_reply_to_a_renewal_is_waited_for_until_the_first_of_its_permits_ends() {
    let (mut keeper, now) = (Keeper::default(), now());
    let numbers = [5_000, 600, 5_000].map(|lease_ms| keep(&mut keeper, lease_ms, now));
    let (batch, until) = keeper.batch(&numbers, now);
    assert_eq!(batch.len(), 3);
    assert_eq!(until, Some(now.instant() + Duration::from_millis(599)));
    // One that is almost lost leaves the others a little time.
    let almost = keep(&mut keeper, 10, now);
    let (_, until) = keeper.batch(&[numbers[0], almost], now);
    assert_eq!(until, Some(now.instant() + LEAST));
}

#[test]
fn a_renewal_that_its_release_overtook_is_no_loss() {
    let (mut keeper, now) = (Keeper::default(), now());
    let number = keep(&mut keeper, 600, now);
    keeper.leave(number); // the release is on its way, and reaches the server first
    let _ = keeper.renewed(number, Ok(None), now, now);
    assert!(keeper.take_losses().is_empty());
}
