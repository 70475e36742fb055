//! The permits that this process holds, as a state machine: which permits to renew, and when; which are lost.

use super::exchange::BATCH;
use super::held::{HeldPermit, HeldState, Identity};
use super::lease::{LeaseOptions, Moment};
use super::semaphore::Grant;
use crate::failure::CallError;
use crate::kind::FailureKind;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The minimum time to wait for the reply to a refresh of several permits, even if one of them is about to
/// end.
pub const SHORTEST_REFRESH: Duration = Duration::from_millis(50);

/// A renewal that is due within this time is sent together with one that is due now.
const TOGETHER: Duration = Duration::from_millis(5);

/// The number of a permit in its keeper.
pub type Number = u64;

/// Work to do for permits at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeeperTask {
    /// Renew the permits that this server granted. A server that does not answer must not delay renewals on
    /// others.
    Renew(usize),
    /// Report lost permits. This does not wait for any reply.
    Report,
}

/// A permit turned out to be lost.
#[derive(Clone, Debug)]
pub struct Loss {
    pub identity: Arc<Identity>,
    pub number: Number,
    /// The loss is noticed for the first time.
    pub is_new: bool,
    /// The holder's callback must be called.
    pub is_reported: bool,
}

/// The outcome of a refresh: the new lease, and when the call was sent; `None`: the permit is lost.
pub type Refreshed = Result<Option<(Grant, Moment)>, CallError>;

/// Why a permit has no new lease.
#[derive(Clone, Debug)]
pub enum NotRefreshed {
    /// The permit no longer belongs to this holder.
    Lost,
    Unanswered(CallError),
}

/// The permits that are planned for each task, in the order of their times.
type Plans = BTreeMap<KeeperTask, BTreeSet<(Instant, Number)>>;

/// All permits of a gate.
#[derive(Clone, Debug, Default)]
pub struct Keeper {
    permits: BTreeMap<Number, KeptPermit>,
    last: Number,
    plans: Plans,
    losses: Vec<Loss>,
}

#[derive(Clone, Debug)]
struct KeptPermit {
    held: HeldPermit,
    node: usize,
    is_renewed: bool,
    is_reported: bool,
    renews_at: Option<Instant>,
    reports_at: Option<Instant>,
}

impl KeptPermit {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.held.identity.lease.lease_ms)
    }
}

/// Moves a permit to another time in a plan, or removes it from the plan.
fn replan(
    plans: &mut Plans,
    task: KeeperTask,
    number: Number,
    planned: &mut Option<Instant>,
    at: Option<Instant>,
) {
    if *planned == at {
        return;
    }
    let plan = plans.entry(task).or_default();
    if let Some(before) = planned.take() {
        plan.remove(&(before, number));
    }
    if let Some(at) = at {
        plan.insert((at, number));
    }
    *planned = at;
}

impl Keeper {
    /// Starts to watch a permit that server `node` granted. `is_reported`: its holder has a callback for its
    /// loss.
    pub fn keep(&mut self, held: HeldPermit, node: usize, is_reported: bool, now: Moment) -> Number {
        self.last += 1;
        let number = self.last;
        let LeaseOptions { renewed, lease_ms, .. } = held.identity.lease;
        let kept = KeptPermit {
            held,
            node,
            is_renewed: renewed && lease_ms > 0,
            is_reported,
            renews_at: None,
            reports_at: None,
        };
        self.permits.insert(number, kept);
        self.plan_next(number, now);
        number
    }

    /// Removes a permit that is dropped.
    pub fn remove(&mut self, number: Number) {
        if let Some(mut kept) = self.permits.remove(&number) {
            replan(&mut self.plans, KeeperTask::Renew(kept.node), number, &mut kept.renews_at, None);
            replan(&mut self.plans, KeeperTask::Report, number, &mut kept.reports_at, None);
        }
    }

    /// A call that releases the permit is about to be sent. `false`: there is nothing to release. From now on
    /// it is not watched. A renewal that is in progress has no effect: the script does not refresh a released
    /// id.
    pub fn begin_release(&mut self, number: Number, now: Moment) -> bool {
        self.change(number, |held| held.begin_release(now)).unwrap_or_default()
    }

    /// Its release was answered. `found`: there was something to release. `repeated`: the server may have run
    /// it twice.
    pub fn released(&mut self, number: Number, found: bool, repeated: bool) {
        let is_new = self.change(number, |held| held.released(found, repeated)).unwrap_or_default();
        self.tell(number, is_new, false);
    }

    /// Changes the state of a permit, which may end its plans.
    pub fn change<T>(&mut self, number: Number, change: impl FnOnce(&mut HeldPermit) -> T) -> Option<T> {
        let kept = self.permits.get_mut(&number)?;
        let result = change(&mut kept.held);
        self.plan(number, None);
        Some(result)
    }

    /// Stops renewing a permit. A renewal that is in progress still counts, and is the last.
    pub fn stop_renewal(&mut self, number: Number) {
        if let Some(kept) = self.permits.get_mut(&number) {
            kept.is_renewed = false;
            replan(&mut self.plans, KeeperTask::Renew(kept.node), number, &mut kept.renews_at, None);
        }
    }

    /// Plans the next work for a permit: its renewal after a third of the time that is left, its loss at the
    /// end.
    fn plan_next(&mut self, number: Number, now: Moment) {
        if let Some(kept) = self.permits.get(&number) {
            // The time that is left can differ from the lease. It is shorter after `refresh_for` with a short
            // lease, or if the grant message was delayed. It can also be longer.
            let lease = kept.lease();
            let end = kept.held.deadline().instant();
            let left = end.map_or(lease, |end| end.saturating_duration_since(now.instant()));
            self.plan(number, Some(now.instant() + lease.min(left) / 3));
        }
    }

    /// Plans the next try of a renewal that failed, early enough for several more tries before the deadline.
    fn plan_retry(&mut self, number: Number, now: Moment) {
        if let Some(kept) = self.permits.get(&number) {
            let pause = (kept.lease() / 10).clamp(Duration::from_millis(5), Duration::from_secs(1));
            let at = now.instant() + pause;
            let end = kept.held.deadline().instant(); // may be earlier now
            self.plan(number, Some(end.map_or(at, |end| at.min(end))));
        }
    }

    /// Plans the renewal of a permit (`None`: no renewal), and the report of its loss.
    fn plan(&mut self, number: Number, renews_at: Option<Instant>) {
        if let Some(kept) = self.permits.get_mut(&number) {
            let is_watched = kept.held.is_watched();
            let goes_on = fault!("a permit is renewed after its release").then_some(kept.renews_at).flatten();
            let renews_at = renews_at.filter(|_| is_watched).or(goes_on).filter(|_| kept.is_renewed);
            let reports_at = kept.held.deadline().instant().filter(|_| kept.is_reported && is_watched);
            replan(&mut self.plans, KeeperTask::Renew(kept.node), number, &mut kept.renews_at, renews_at);
            replan(&mut self.plans, KeeperTask::Report, number, &mut kept.reports_at, reports_at);
        }
    }

    /// Plans the renewals of this server's permits for now, or of the first `most` of them.
    pub fn hasten(&mut self, node: usize, most: usize, now: Moment) {
        let planned = self.plans.get(&KeeperTask::Renew(node)).into_iter().flatten().take(most);
        let later: Vec<_> =
            planned.filter(|(at, _)| *at > now.instant()).map(|(_, number)| *number).collect();
        later.into_iter().for_each(|number| self.plan(number, Some(now.instant())));
    }

    /// The time at which the next permit is due for a task.
    pub fn next(&self, task: KeeperTask) -> Option<Instant> {
        let (at, _) = self.plans.get(&task)?.first()?;
        Some(*at)
    }

    /// The servers with planned renewals, each with the time of its first one.
    pub fn renewals(&self) -> impl Iterator<Item = (usize, Instant)> {
        let plans = self.plans.iter();
        plans.filter_map(|(task, plan)| match task {
            KeeperTask::Renew(node) => Some((*node, plan.first()?.0)),
            KeeperTask::Report => None,
        })
    }

    /// From now on the end of this permit's lease is reported, as for a permit whose holder has a callback.
    pub fn report(&mut self, number: Number) {
        if let Some(kept) = self.permits.get_mut(&number) {
            kept.is_reported = true;
            let renews_at = kept.renews_at;
            self.plan(number, renews_at);
        }
    }

    /// The permits that are due for a task. A permit that is lost by now is recorded as a [`Loss`] and not
    /// returned. For `Report` that is true of all. `None`: nothing is due.
    pub fn due(&mut self, task: KeeperTask, now: Moment) -> Option<Vec<Number>> {
        self.next(task).filter(|at| *at <= now.instant())?;
        let soon = match task {
            KeeperTask::Renew(_) => now.instant() + TOGETHER,
            KeeperTask::Report => now.instant(), // not earlier, since it is lost only then
        };
        let mut due = Vec::new();
        while due.len() < BATCH
            && let Some(plan) = self.plans.get_mut(&task)
            && plan.first().is_some_and(|(at, _)| *at <= soon)
            && let Some((_, number)) = plan.pop_first()
        {
            let Some(kept) = self.permits.get_mut(&number) else {
                continue;
            };
            match task {
                KeeperTask::Renew(_) => kept.renews_at = None,
                KeeperTask::Report => kept.reports_at = None,
            }
            if self.is_lost(number, now) { self.lose(number, true) } else { due.push(number) }
        }
        Some(due)
    }

    /// The permits of this batch that are still watched, and until when to wait for the reply: until the
    /// first of them is lost. A permit that is almost lost must not prevent the renewal of the others;
    /// therefore the wait has a minimum.
    pub fn batch(
        &mut self,
        numbers: &[Number],
        now: Moment,
    ) -> (Vec<(Number, Arc<Identity>)>, Option<Instant>) {
        let kept = numbers.iter().filter_map(|number| {
            let kept = self.permits.get(number)?;
            Some((*number, kept))
        });
        let ends = kept.clone().filter_map(|(_, kept)| kept.held.deadline().instant());
        let until = ends.min().map(|end| end.max(now.instant() + SHORTEST_REFRESH));
        let identities = kept.map(|(number, kept)| (number, kept.held.identity.clone()));
        let identities: Vec<_> = identities.collect();
        for (number, identity) in &identities {
            self.refreshing(*number, identity.lease.lease_ms, now);
        }
        (identities, until)
    }

    /// The holder's own refresh with this lease is about to be sent.
    pub fn refreshing(&mut self, number: Number, lease_ms: u64, now: Moment) {
        if let Some(kept) = self.permits.get_mut(&number) {
            kept.held.refreshing(lease_ms, now);
        }
    }

    /// Takes the outcome of a renewal.
    pub fn renewed(&mut self, number: Number, outcome: Refreshed, now: Moment) -> Result<(), NotRefreshed> {
        let Some(kept) = self.permits.get(&number) else {
            return Ok(());
        };
        let lease_ms = kept.held.identity.lease.lease_ms;
        let result = self.refresh(number, lease_ms, outcome, now);
        match &result {
            Ok(()) => self.plan_next(number, now),
            Err(NotRefreshed::Lost) => self.not_refreshed(number, true),
            // Other failures, for example an overwritten key, are retried until the deadline.
            Err(_) => self.plan_retry(number, now),
        }
        result
    }

    /// Takes the outcome of the holder's own refresh. A permit that is lost is no longer watched.
    pub fn refreshed(
        &mut self,
        number: Number,
        lease_ms: u64,
        outcome: Refreshed,
        now: Moment,
    ) -> Result<(), NotRefreshed> {
        let result = self.refresh(number, lease_ms, outcome, now);
        match &result {
            // The end may now be earlier than planned.
            Ok(()) | Err(NotRefreshed::Unanswered(CallError::Unknown(_))) => self.plan_next(number, now),
            Err(NotRefreshed::Lost) => self.not_refreshed(number, false),
            Err(_) => {}
        }
        result
    }

    /// A refresh says that the permit is lost. If it is being released, its release may have run first, and
    /// reports a loss itself.
    fn not_refreshed(&mut self, number: Number, wanted: bool) {
        let kept = self.permits.get(&number);
        if !kept.is_some_and(|kept| matches!(kept.held.state, HeldState::Releasing { .. })) {
            self.lose(number, wanted);
        }
    }

    fn refresh(
        &mut self,
        number: Number,
        lease_ms: u64,
        outcome: Refreshed,
        now: Moment,
    ) -> Result<(), NotRefreshed> {
        let Some(kept) = self.permits.get_mut(&number) else {
            return Ok(());
        };
        match &outcome {
            Err(error) if may_have_run(error) => kept.held.unanswered(lease_ms),
            _ => kept.held.answered(lease_ms),
        }
        match outcome.map_err(NotRefreshed::Unanswered)? {
            Some((grant, sent)) if kept.held.extend(&grant, sent, now) => Ok(()),
            _ => Err(NotRefreshed::Lost),
        }
    }

    /// The server reports that the permit is lost, or its deadline has passed. `wanted`: the holder must be
    /// notified.
    pub fn lose(&mut self, number: Number, wanted: bool) {
        if let Some(kept) = self.permits.get_mut(&number) {
            let (is_watched, is_new) = kept.held.lose();
            let is_reported = wanted && is_watched && kept.is_reported;
            self.tell(number, is_new, is_reported);
            self.plan(number, None);
        }
    }

    fn tell(&mut self, number: Number, is_new: bool, is_reported: bool) {
        if let Some(kept) = self.permits.get(&number)
            && (is_new || is_reported)
        {
            self.losses.push(Loss { identity: kept.held.identity.clone(), number, is_new, is_reported });
        }
    }

    /// The time that is left of the lease: zero if the permit is lost, `None` if it is permanent.
    pub fn remaining(&mut self, number: Number, now: Moment) -> Option<Duration> {
        let Some(kept) = self.permits.get_mut(&number) else {
            return Some(Duration::ZERO);
        };
        let (left, is_new) = kept.held.remaining(now);
        if is_new {
            self.tell(number, true, false);
        }
        left
    }

    pub fn is_lost(&mut self, number: Number, now: Moment) -> bool {
        self.remaining(number, now).is_some_and(|left| left.is_zero())
    }

    /// The permit itself.
    pub fn held(&mut self, number: Number) -> Option<&mut HeldPermit> {
        self.permits.get_mut(&number).map(|kept| &mut kept.held)
    }

    /// The losses since the last call of this function.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses)
    }
}

/// Whether the server may have run a refresh that failed. It did if too few replicas confirmed it.
fn may_have_run(error: &CallError) -> bool {
    match error {
        CallError::Unknown(_) => true,
        CallError::Failed(failure) => failure.kind() == FailureKind::TooFewReplicas,
        CallError::Invalid(_) => false,
    }
}
