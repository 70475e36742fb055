//! Held permits: what `src/permit.rs` and `src/lease/permits.rs` do around the keeper.

use super::flights::{Answered, Unanswered};
use super::waits::Caller;
use super::{Client, Outcome, Thread, Want, Why};
use crate::call::SCRIPTS;
use crate::ledger::Violation;
use crate::protocol::call::{Call, Packed};
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{KeeperTask, Number, Refreshed};
use crate::protocol::keys::Keys;
use crate::protocol::lease::{LeaseOptions, Moment};
use crate::protocol::release::PendingRelease;
use crate::protocol::semaphore::{Grant, Release, ReleaseAnswer};
use crate::protocol::waiter::Granted;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a drop waits for its reply.
const DROP_BOUND: Duration = Duration::from_millis(100);

const BRIEF_MS: u64 = 50;

pub(super) type Batch = Vec<(Number, Arc<Identity>)>;

/// The holder's knowledge of a permit.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    pub(crate) identity: Arc<Identity>,
    /// The number of permits, or fewer if a partial release had no reply.
    pub(crate) least: u32,
    /// The holder has it: it was confirmed and is not being dropped.
    pub(crate) is_had: bool,
    /// The holder has dropped it, and its release is posted.
    pub(crate) is_posted: bool,
    /// When something happened to the server that may have removed it unnoticed.
    pub(crate) excused_at: Option<Instant>,
    /// The holder saw that it was lost.
    pub(crate) seen_lost: bool,
    /// How often its loss was reported to the holder.
    pub(crate) reported: u32,
    pub(crate) on_lost: bool,
    /// One of its leases is too short for reliable renewal.
    pub(crate) is_brief: bool,
    /// The length of its last new lease by the monotonic clock, and when that began.
    pub(crate) leased: Option<(Duration, Instant)>,
}

/// A change of a permit by its holder.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Drop(Number, Instant),
    /// Releases all but this many permits.
    Keep(Number, u32),
    Refresh {
        number: Number,
        lease_ms: u64,
        /// The holder does not have the permit before this call has succeeded.
        confirms: bool,
    },
}

impl Client {
    /// A caller was granted permits.
    pub(super) fn granted(&mut self, want: &Want, granted: Granted, is_excused: bool, now: Moment) {
        if granted.deadline.is_past(now) {
            self.break_promise("late", format!("{} was given a permit that had ended", want.id));
        }
        let identity = Arc::new(granted.identity);
        let held = HeldPermit::new(identity.clone(), &granted.grant, granted.deadline);
        let number = self.keeper.keep(held, 0, want.on_lost, now);
        let confirms = want.lease.lease_ms == 0;
        let permit = Permit {
            identity,
            least: granted.grant.permits,
            is_had: !confirms,
            is_posted: false,
            excused_at: is_excused.then_some(now.instant()),
            seen_lost: false,
            reported: 0,
            on_lost: want.on_lost,
            is_brief: want.lease.lease_ms < BRIEF_MS,
            leased: None,
        };
        self.permits.insert(number, permit);
        self.note_lease(number, now);
        if confirms {
            self.send_refresh(number, 0, true, now)
        } else {
            self.outcomes.push(Outcome::Granted(number))
        }
    }

    /// How long a permit still lasts by the clocks of its holder, without marking it as lost; `None`: for
    /// ever.
    pub(crate) fn left(&mut self, number: Number, now: Moment) -> Option<Duration> {
        match self.keeper.held(number) {
            Some(held) if held.is_valid() => held.deadline().remaining(now),
            _ => Some(Duration::ZERO),
        }
    }

    /// If the lease ends by the clock that counts suspended time first, nothing is planned at that end.
    fn note_lease(&mut self, number: Number, now: Moment) {
        let left = self.left(number, now);
        let held = self.keeper.held(number);
        let end = held.and_then(|held| held.deadline().instant());
        if let Some(permit) = self.permits.get_mut(&number) {
            let left = left.filter(|left| end == Some(now.instant() + *left));
            permit.leased = left.map(|left| (left, now.instant()));
        }
    }

    /// The holder checks whether the permit is lost.
    pub(crate) fn look(&mut self, number: Number, now: Moment) -> bool {
        let is_lost = self.keeper.is_lost(number, now);
        self.take_losses();
        if let Some(permit) = self.permits.get_mut(&number) {
            if permit.seen_lost && !is_lost {
                let text = format!("{} was lost and is held again", permit.identity.id);
                self.break_promise("stays lost", text);
            } else {
                permit.seen_lost = is_lost;
            }
        }
        is_lost
    }

    pub(crate) fn break_promise(&mut self, rule: &'static str, text: String) {
        self.violation.get_or_insert(Violation { rule, text });
    }

    /// The holder releases the permit, and waits for the reply; or drops it, every second one.
    pub(crate) fn drop_permit(&mut self, number: Number, now: Moment) {
        self.look(number, now);
        let is_sent = self.keeper.begin_release(number, now);
        self.take_losses();
        let Some(permit) = self.permits.get_mut(&number) else {
            return;
        };
        permit.is_had = false;
        let identity = permit.identity.clone();
        if !is_sent {
            return self.forget(number);
        }
        if number.is_multiple_of(2) {
            permit.is_posted = true;
            let longest = self.keeper.held(number).and_then(|held| held.longest());
            return self.release_later(
                PendingRelease::of_permit(&identity, longest, now.instant()),
                Some(number),
                now,
            );
        }
        let until = now.instant() + DROP_BOUND;
        let call = release_of(&identity, 0).pack(&SCRIPTS);
        self.change(Change::Drop(number, until), &call, Some(until), now);
    }

    /// The posted release of a permit is answered, and has found it or not; `None`: it is repeated.
    pub(super) fn dropped(&mut self, number: Number, found: Option<bool>) {
        let is_lost = found.is_some_and(|found| self.end_release(number, found, false));
        self.forget_dropped(number, is_lost);
    }

    /// A release is answered. Returns whether the answer shows that the permit was lost.
    fn end_release(&mut self, number: Number, found: bool, repeated: bool) -> bool {
        self.keeper.released(number, found, repeated);
        self.take_losses().contains(&number)
    }

    fn forget_dropped(&mut self, number: Number, is_lost: bool) {
        if let Some(permit) = self.permits.get(&number) {
            let (keys, id) = (permit.identity.keys.clone(), permit.identity.id.clone());
            let fence = permit.identity.own_fence();
            let why = if is_lost { Why::Lost { fence } } else { Why::Other("released".to_owned()) };
            self.forget(number);
            if !self.uses(&keys, &id) {
                self.outcomes.push(Outcome::Nothing { keys, id, why, unknown: false });
            }
        }
    }

    fn forget(&mut self, number: Number) {
        self.keeper.remove(number);
        self.permits.remove(&number);
    }

    fn change(&mut self, change: Change, call: &Packed, until: Option<Instant>, now: Moment) {
        let caller = self.next_number();
        let calls = std::slice::from_ref(call);
        self.send(Thread::Caller(caller), calls, until, now);
        self.callers.insert(caller, Caller::Changes(change));
    }

    /// The holder releases all but this many permits.
    pub(crate) fn keep_less(&mut self, number: Number, keep: u32, now: Moment) {
        if self.look(number, now) {
            return;
        }
        if let Some(permit) = self.permits.get_mut(&number) {
            permit.least = permit.least.min(keep);
            let call = release_of(&permit.identity, keep).pack(&SCRIPTS);
            self.change(Change::Keep(number, keep), &call, None, now);
        }
    }

    /// The holder refreshes the permit; `None`: with its configured lease.
    pub(crate) fn refresh(&mut self, number: Number, lease_ms: Option<u64>, now: Moment) {
        if self.look(number, now) {
            return;
        }
        let own = |permit: &Permit| permit.identity.lease.lease_ms;
        if let Some(own) = self.permits.get(&number).map(own) {
            self.send_refresh(number, lease_ms.unwrap_or(own), false, now);
        }
    }

    fn send_refresh(&mut self, number: Number, lease_ms: u64, confirms: bool, now: Moment) {
        if let Some(held) = self.keeper.held(number) {
            let until = held.deadline().instant();
            let call = held.identity.refresh(lease_ms).pack(&SCRIPTS);
            self.keeper.refreshing(number, lease_ms, now);
            if let Some(permit) = self.permits.get_mut(&number) {
                permit.is_brief |= lease_ms < BRIEF_MS;
            }
            let change = Change::Refresh { number, lease_ms, confirms };
            self.change(change, &call, until, now);
        }
    }

    /// A change has its reply, or failed.
    pub(super) fn changed(&mut self, change: Change, answered: Answered, now: Moment) {
        match change {
            Change::Drop(number, until) => self.has_released(number, until, answered, now),
            Change::Keep(number, keep) => {
                let Some(identity) = self.permits.get(&number).map(|p| p.identity.clone()) else {
                    return;
                };
                match answered.read(|reply| release_of(&identity, keep).answer(reply)) {
                    Ok(ReleaseAnswer::Released { left, .. }) => {
                        if let Some(held) = self.keeper.held(number) {
                            held.permits = left;
                        }
                    }
                    Ok(ReleaseAnswer::Cancelled | ReleaseAnswer::Gone) => {
                        self.keeper.lose(number, false);
                        self.take_losses();
                    }
                    Err(_) => {}
                }
            }
            Change::Refresh { number, lease_ms, confirms } => {
                let Some(identity) = self.permits.get(&number).map(|p| p.identity.clone()) else {
                    return;
                };
                let sent = answered.sent;
                let outcome = answered.read(|reply| identity.refresh(lease_ms).answer(reply));
                let refreshed =
                    self.keeper.refreshed(number, lease_ms, refreshed(outcome, sent), now).is_ok();
                self.take_losses();
                if refreshed {
                    self.note_refresh(number, sent, now);
                }
                if confirms && refreshed {
                    if let Some(permit) = self.permits.get_mut(&number) {
                        permit.is_had = true;
                    }
                    self.outcomes.push(Outcome::Granted(number));
                } else if confirms {
                    self.drop_permit(number, now);
                }
            }
        }
    }

    fn note_refresh(&mut self, number: Number, sent: Moment, now: Moment) {
        if self.permits.get(&number).is_some_and(|permit| permit.seen_lost) {
            self.break_promise("stays lost", format!("permit {number} was renewed after its end"));
        }
        self.note_lease(number, now);
        if let Some(permit) = self.permits.get_mut(&number) {
            permit.excused_at = permit.excused_at.filter(|at| *at >= sent.instant()); // later calls show that it is held
        }
    }

    /// Whether an id is used, perhaps again.
    fn uses(&self, keys: &Keys, id: &str) -> bool {
        let mut wants = self.callers.values().filter_map(Caller::want);
        let mut held = self.permits.values().map(|permit| &permit.identity);
        wants.any(|want| want.keys == *keys && want.id == id)
            || held.any(|held| held.keys == *keys && held.id == id)
    }

    fn has_released(&mut self, number: Number, until: Instant, answered: Answered, now: Moment) {
        let Some(permit) = self.permits.get(&number) else {
            return;
        };
        let identity = permit.identity.clone();
        let is_repeated = answered.repeated.is_some();
        let is_lost = match answered.read(|reply| release_of(&identity, 0).answer(reply)) {
            Ok(answer) => {
                let found = matches!(answer, ReleaseAnswer::Released { .. });
                self.end_release(number, found, is_repeated)
            }
            Err(_) => {
                let longest = self.keeper.held(number).and_then(|held| held.longest());
                self.release_later(PendingRelease::of_permit(&identity, longest, until), None, now);
                false
            }
        };
        self.forget_dropped(number, is_lost);
    }

    /// The renewal thread checks what is due.
    pub(super) fn renew(&mut self, now: Moment) {
        let Some(due) = self.keeper.due(KeeperTask::Renew(0), now) else {
            return;
        };
        self.take_losses();
        let (batch, until) = self.keeper.batch(&due, now);
        for (number, identity) in &batch {
            let had = self.permits.get(number).is_some_and(|permit| permit.is_had);
            if !had || self.left(*number, now).is_some_and(|left| left.is_zero()) {
                let text = format!("{} is renewed after its end", identity.id);
                self.break_promise("renewal after the end", text);
            }
        }
        let refreshes = batch.iter().map(|(_, identity)| {
            let LeaseOptions { lease_ms, .. } = identity.lease;
            identity.refresh(lease_ms).pack(&SCRIPTS)
        });
        let calls: Vec<Packed> = refreshes.collect();
        if !calls.is_empty() {
            self.send(Thread::Renewal, &calls, until, now);
        }
        self.renewing = batch;
    }

    /// The renewal thread has its replies.
    pub(super) fn renewed(&mut self, answered: Vec<Answered>, now: Moment) {
        let batch = std::mem::take(&mut self.renewing);
        for ((number, identity), answered) in batch.into_iter().zip(answered) {
            let (sent, lease_ms) = (answered.sent, identity.lease.lease_ms);
            let outcome = answered.read(|reply| identity.refresh(lease_ms).answer(reply));
            if self.keeper.renewed(number, refreshed(outcome, sent), now).is_ok() {
                self.note_refresh(number, sent, now);
            }
        }
        self.take_losses();
    }

    /// The thread that reports losses checks what is due.
    pub(super) fn report_losses(&mut self, now: Moment) {
        self.keeper.due(KeeperTask::Report, now);
        self.take_losses();
    }

    /// Reports losses to the holders. Returns those that are new to them.
    fn take_losses(&mut self) -> Vec<Number> {
        let losses = self.keeper.take_losses();
        for loss in &losses {
            let Some(permit) = self.permits.get_mut(&loss.number) else {
                continue;
            };
            permit.reported += u32::from(loss.is_reported);
            if loss.is_reported || !permit.on_lost {
                permit.leased = None; // nobody renews it any more
            }
            let is_kept = permit.is_had && permit.identity.lease.renewed && !permit.is_brief;
            if self.is_calm && is_kept && permit.excused_at.is_none() {
                let text = format!("{} is lost, although no fault happened", permit.identity.id);
                self.break_promise("renewal", text);
            }
        }
        losses.iter().filter(|loss| loss.is_new).map(|loss| loss.number).collect()
    }
}

fn release_of(identity: &Identity, keep: u32) -> Release<'_> {
    Release { keys: &identity.keys, id: &identity.id, keep, fence: identity.own_fence() }
}

fn refreshed(outcome: Result<Option<Grant>, Unanswered>, sent: Moment) -> Refreshed {
    match outcome {
        Ok(grant) => Ok(grant.map(|grant| (grant, sent))),
        Err(unanswered) => Err(unanswered.error),
    }
}
