//! Callers that want something: what `src/wait/mod.rs` does around a waiter.

mod caller;
mod waiting;

use super::flights::{Answered, Connection, Unanswered, lost};
use super::{Client, Outcome, Patience, Thread, Want, Why};
use crate::call::SCRIPTS;
use crate::protocol::call::Call;
use crate::protocol::failure::{CallError, Failure};
use crate::protocol::inbox::Mailbox;
use crate::protocol::keys::LatchKeys;
use crate::protocol::kind::FailureKind;
use crate::protocol::latch_target::LatchTarget;
use crate::protocol::lease::Moment;
use crate::protocol::outbox::{Before, Mark, Ordered, may_go_on};
use crate::protocol::release::{LostCalls, PendingRelease};
use crate::protocol::waiter::{
    Action, ActionOf, AskKind, Event, GiveBack, Granted, NotGranted, PermitTarget, QueueEntry, WaitTarget,
    Waiter, WaiterState, last_call_ends,
};
pub(crate) use caller::{Caller, Settles, Then};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;
pub(crate) use waiting::Waiting;

impl Want {
    fn target(&self) -> PermitTarget {
        PermitTarget {
            keys: self.keys.clone(),
            id: self.id.clone(),
            permits: self.permits,
            limit: self.limit,
            strict: self.strict,
            max_waiting: self.max_waiting,
            head_start_ms: self.head_start_ms,
            lease: self.lease,
            entry: QueueEntry::default(),
        }
    }
}

impl Client {
    /// A caller wants permits.
    pub(crate) fn want(&mut self, want: Want, now: Moment) -> u64 {
        let number = self.next_number();
        let until = match want.patience {
            Patience::For(ms) => Some(now.instant() + Duration::from_millis(ms)),
            Patience::None | Patience::Forever => self.read_timeout.map(|time| now.instant() + time),
        };
        let settles = Settles {
            want,
            since: now.instant(),
            until,
            after: None,
            only_own: false,
            sends: None,
            then: Then::Begin,
        };
        self.settle(number, settles, now);
        number
    }

    /// Goes on once what precedes its call is released, or posted.
    fn settle(&mut self, number: u64, mut settles: Settles, now: Moment) {
        let Want { keys, id, .. } = &settles.want;
        let (key, closed) = (keys.list()[0].as_bytes(), &self.closed);
        let is_open = |connection: &Connection| !closed.contains(&connection.number);
        let call = Ordered { key, own_id: Some(id), after: settles.after, only_own: settles.only_own };
        match self.outbox.before(call, now.instant(), is_open) {
            Before::Clear { floor } => return self.precede(number, settles, floor, now),
            Before::Send { numbers, is_own } => {
                self.drive(Thread::Caller(number), &numbers, settles.until, now);
                settles.sends = Some((numbers, is_own));
            }
            Before::Wait if settles.until.is_some_and(|until| until <= now.instant()) => {
                return self.unsettled(number, settles, now);
            }
            Before::Wait => {}
        }
        self.callers.insert(number, Caller::Settles(Box::new(settles)));
    }

    /// The call may be sent.
    fn precede(&mut self, number: u64, settles: Settles, floor: u64, now: Moment) {
        let Settles { want, since, then, .. } = settles;
        match then {
            Then::Begin => self.begin(number, want, since, floor, now),
            Then::TryAgain(mut target) => {
                target.entry.floor = floor;
                self.try_once(number, want, target, true, now);
            }
            Then::AskAgain(mut waiting) => {
                waiting.waiter.target.has_released(floor);
                let WaiterState::Asks(ask) = waiting.waiter.state else {
                    panic!("it did not ask");
                };
                let until = last_call_ends(waiting.waiter.deadline);
                self.ask(number, &mut waiting, ask, until, now);
                self.callers.insert(number, Caller::Waits(waiting, want));
            }
        }
    }

    /// An earlier release is not confirmed, so the call is not sent.
    fn unsettled(&mut self, number: u64, settles: Settles, now: Moment) {
        let Settles { want, then, .. } = settles;
        match then {
            Then::Begin | Then::TryAgain(_) => {
                self.nothing(&want, Why::Other("an earlier release is not confirmed".to_owned()), false)
            }
            Then::AskAgain(mut waiting) => {
                let late = Failure::new(FailureKind::TimedOut, "an earlier release is not confirmed");
                let action = waiting.on(Event::Unanswered(CallError::Failed(late)), now);
                self.wait_on(number, waiting, want, action, now);
            }
        }
    }

    /// Releases have changed. The callers that wait for them look again.
    pub(super) fn settle_all(&mut self, now: Moment) {
        let waits = |(number, caller): (&u64, &Caller)| match caller {
            Caller::Settles(settles) if settles.sends.is_none() => Some(*number),
            _ => None,
        };
        let waiting: Vec<u64> = self.callers.iter().filter_map(waits).collect();
        for number in waiting {
            if let Some(Caller::Settles(settles)) = self.callers.remove(&number) {
                self.settle(number, *settles, now);
            }
        }
    }

    /// A caller that sends releases has their replies.
    fn settled(&mut self, number: u64, mut settles: Settles, answered: Vec<Answered>, now: Moment) {
        let Some((numbers, is_own)) = settles.sends.take() else {
            return self.settle(number, settles, now);
        };
        let goes_on = answered.iter().all(|answered| match &answered.outcome {
            Err(unanswered) => may_go_on(is_own, &unanswered.error),
            Ok(_) => true,
        });
        match self.driven(Thread::Caller(number), &numbers, answered, settles.until, now) {
            None => {
                settles.sends = Some((numbers, is_own));
                self.callers.insert(number, Caller::Settles(Box::new(settles)));
                return;
            }
            Some(true) => self.settle(number, settles, now),
            Some(false) if goes_on => self.settle(number, Settles { only_own: true, ..settles }, now),
            Some(false) => self.unsettled(number, settles, now),
        }
        self.settle_all(now);
    }

    fn begin(&mut self, number: u64, want: Want, since: Instant, floor: u64, now: Moment) {
        let mut target = want.target();
        target.entry.floor = floor;
        if target.check().is_err() {
            return self.nothing(&want, Why::Other("invalid".to_owned()), false);
        }
        let deadline = match want.patience {
            Patience::None => return self.try_once(number, want, Box::new(target), false, now),
            Patience::For(ms) => Some(since + Duration::from_millis(ms)),
            Patience::Forever => None,
        };
        let random = Uuid::from_u64_pair(0, number * 64 + self.name as u64);
        let mut mailbox = None;
        let make = |secret| {
            mailbox = Some(Mailbox::new(Some(secret)));
            Arc::new(number)
        };
        let registered = self.inbox.add(&want.keys, &want.id, random, make);
        let (Some(registered), Some(mailbox)) = (registered, mailbox) else {
            return self.nothing(&want, Why::Other("is already waiting".to_owned()), false);
        };
        let waiter = Waiter::new(target, deadline, super::OUTAGE, now.instant());
        let mut waiting = Waiting::new(waiter, mailbox, registered, since);
        let action = waiting.waiter.start(self.opened);
        let action = waiting.go_on(action, now);
        self.wait_on(number, Box::new(waiting), want, action, now);
    }

    fn try_once(&mut self, number: u64, want: Want, target: Box<PermitTarget>, is_again: bool, now: Moment) {
        let (call, mark) = (target.acquire(AskKind::First, "").pack(&SCRIPTS), self.outbox.mark());
        self.send(Thread::Caller(number), &[call], None, now);
        self.callers.insert(number, Caller::Tries { want, target, mark, is_again });
    }

    /// A caller waits for a latch.
    pub(crate) fn watch(
        &mut self,
        keys: &LatchKeys,
        count: u32,
        life_ms: u64,
        wait_ms: Option<u64>,
        begun: u64,
        now: Moment,
    ) {
        let number = self.next_number();
        let target = LatchTarget::new(keys, count, life_ms, now.instant());
        let deadline = wait_ms.map(|ms| now.instant() + Duration::from_millis(ms));
        let registered = Arc::new(number);
        self.inbox.add_shared(keys.list()[0], &registered);
        let waiter = Waiter::new(target, deadline, super::OUTAGE, now.instant());
        let mailbox = Mailbox::new(None);
        let mut waiting = Waiting::new(waiter, mailbox, registered, now.instant());
        let action = waiting.waiter.start(self.opened);
        let action = waiting.go_on(action, now);
        let caller = Caller::Watches {
            waiting: Box::new(waiting),
            keys: keys.clone(),
            patience: wait_ms.map_or(Patience::Forever, Patience::For),
            begun,
        };
        self.watch_on(number, caller, action, now);
    }

    /// Sends a call of a wait. A call in line contains the inbox.
    fn ask<T: WaitTarget>(
        &mut self,
        number: u64,
        waiting: &mut Waiting<T>,
        ask: AskKind,
        until: Option<Instant>,
        now: Moment,
    ) {
        let channel = (ask == AskKind::InLine && self.is_up).then_some(&self.channel);
        let inbox = channel.map(|channel| waiting.mailbox.inbox(channel));
        self.opened |= ask == AskKind::InLine;
        waiting.asks += 1;
        let call = waiting.waiter.target.call(ask, &inbox.unwrap_or_default(), &SCRIPTS);
        waiting.mark = self.outbox.mark();
        self.send(Thread::Caller(number), &[call], until, now);
    }

    fn wait_on(
        &mut self,
        number: u64,
        mut waiting: Box<Waiting<PermitTarget>>,
        want: Want,
        action: ActionOf<PermitTarget>,
        now: Moment,
    ) {
        match action {
            Action::Ask { ask, until } => self.ask(number, &mut waiting, ask, until, now),
            Action::Sleep { .. } => {}
            Action::Done { result, give_back } => {
                let why = match result {
                    Ok(granted) => {
                        self.inbox.remove(&want.id, &waiting.number);
                        self.release_others(*waiting.clone(), &granted, now);
                        let is_excused = waiting.excused_until.is_some();
                        return self.granted(&want, granted, is_excused, now);
                    }
                    Err(error) => Why::Ended(error),
                };
                return self.wait_over(number, waiting, want, why, give_back, now);
            }
        }
        self.callers.insert(number, Caller::Waits(waiting, want));
    }

    fn watch_on(&mut self, number: u64, mut caller: Caller, action: ActionOf<LatchTarget>, now: Moment) {
        let Caller::Watches { waiting, keys, begun, .. } = &mut caller else {
            return;
        };
        match action {
            Action::Ask { ask, until } => self.ask(number, waiting, ask, until, now),
            Action::Sleep { .. } => {}
            Action::Done { result, .. } => {
                self.inbox.remove(keys.list()[0], &waiting.number);
                if result.is_ok() {
                    let (keys, begun) = (keys.clone(), *begun);
                    self.outcomes.push(Outcome::Opened { keys, begun });
                }
                return;
            }
        }
        self.callers.insert(number, caller);
    }

    /// A wait ended without a grant.
    fn wait_over(
        &mut self,
        number: u64,
        waiting: Box<Waiting<PermitTarget>>,
        want: Want,
        why: Why,
        give_back: GiveBack,
        now: Moment,
    ) {
        let is_over = match want.patience {
            Patience::For(ms) => waiting.since + Duration::from_millis(ms) <= now.instant(),
            Patience::None | Patience::Forever => false,
        };
        if matches!(why, Why::Ended(NotGranted::TimedOut(_))) && !is_over {
            self.break_promise("timeout", format!("{} ends too early: {why}", want.id));
        }
        if matches!(why, Why::Ended(NotGranted::LineFull(_))) && want.max_waiting == 0 {
            self.break_promise("line", format!("{} is not bounded by max_waiting: {why}", want.id));
        }
        if give_back.now {
            let until = waiting.waiter.give_back_ends(now.instant());
            let mut pending = waiting.waiter.target.release(LostCalls::default(), now.instant());
            let is_sure = !waiting.is_unsure && waiting.lost.is_empty();
            pending.given_up = self.inbox.give_up(now.instant(), &want.keys, &want.id).filter(|_| is_sure);
            let release = self.outbox.send(pending);
            self.drive(Thread::Caller(number), &[release], Some(until), now);
            let caller = Caller::GivesBack { waiting, want, why, release, until, later: give_back.later };
            self.callers.insert(number, caller);
            return;
        }
        if give_back.later {
            let mut pending = waiting.waiter.target.release(waiting.lost.clone(), now.instant());
            let given_up = self.inbox.give_up(now.instant(), &want.keys, &want.id);
            pending.given_up = given_up.filter(|_| !waiting.is_unsure);
            self.release_later(pending, None, now);
        }
        self.inbox.remove(&want.id, &waiting.number);
        self.nothing(&want, why, waiting.unknown);
    }

    /// The wait has its permit. Releases what its calls without an answer may still cause.
    fn release_others(&mut self, waiting: Waiting<PermitTarget>, granted: &Granted, now: Moment) {
        let mut lost = waiting.lost;
        lost.forget_closed(|connection| !self.closed.contains(&connection.number));
        if !lost.is_empty() {
            let (longest, now_at) = (waiting.waiter.target.longest(), now.instant());
            self.release_later(PendingRelease::of_other(&granted.identity, lost, longest, now_at), None, now);
        }
    }

    /// Reports to the caller that it has nothing.
    pub(super) fn nothing(&mut self, want: &Want, why: Why, unknown: bool) {
        self.outcomes.push(Outcome::Nothing { keys: want.keys.clone(), id: want.id.clone(), why, unknown });
    }

    pub(super) fn wake(&mut self, number: u64, now: Moment) {
        match self.callers.remove(&number) {
            Some(Caller::Settles(settles)) => self.settle(number, *settles, now),
            Some(Caller::Waits(mut waiting, want)) => {
                let action = waiting.wake(now);
                self.wait_on(number, waiting, want, action, now);
            }
            Some(mut caller @ Caller::Watches { .. }) => {
                if let Caller::Watches { waiting, .. } = &mut caller {
                    let action = waiting.wake(now);
                    self.watch_on(number, caller, action, now);
                }
            }
            Some(other) => drop(self.callers.insert(number, other)),
            None => {}
        }
    }

    /// A caller has the replies to its calls.
    pub(super) fn answered(&mut self, number: u64, mut replies: Vec<Answered>, now: Moment) {
        let mut caller = self.callers.remove(&number);
        if let Some(Caller::Settles(settles)) = caller {
            return self.settled(number, *settles, replies, now);
        }
        let Some(answered) = replies.pop() else {
            return;
        };
        match &mut caller {
            Some(Caller::Watches { waiting, .. }) => {
                let event = waiting.answered(answered);
                let action = waiting.on(event, now);
                self.watch_on(number, caller.expect("it watches"), action, now);
                return;
            }
            Some(_) => {}
            None => return,
        }
        match caller.expect("it asks") {
            Caller::Tries { want, target, mark, is_again } => {
                self.tried(number, want, target, (mark, is_again), answered, now);
            }
            Caller::TriesAll(wants) => self.tried_all(&wants, answered, now),
            Caller::Waits(mut waiting, want) => {
                let event = waiting.answered(answered);
                let (key, mark) = (want.keys.list()[0].as_bytes(), waiting.mark);
                let is_overtaken = waiting.is_overtaken(&event) || self.outbox.is_overtaken(key, mark);
                if waiting.doubts(&event) && is_overtaken {
                    waiting.is_again = true;
                    let last = last_call_ends(waiting.waiter.deadline);
                    let until = last.or(self.read_timeout.map(|time| now.instant() + time));
                    let (since, then) = (waiting.since, Then::AskAgain(waiting));
                    let settles =
                        Settles { want, since, until, after: Some(mark), only_own: false, sends: None, then };
                    return self.settle(number, settles, now);
                }
                let action = waiting.on(event, now);
                self.wait_on(number, waiting, want, action, now);
            }
            Caller::GivesBack { waiting, want, why, release, until, later } => {
                let thread = Thread::Caller(number);
                if self.driven(thread, &[release], vec![answered], Some(until), now).is_none() {
                    let caller = Caller::GivesBack { waiting, want, why, release, until, later };
                    self.callers.insert(number, caller);
                    return;
                }
                let give_back = GiveBack { now: false, later };
                self.wait_over(number, waiting, want, why, give_back, now);
                self.settle_all(now);
            }
            Caller::Changes(change) => self.changed(change, answered, now),
            Caller::Settles(_) | Caller::Watches { .. } => {}
        }
    }

    /// The reply to a caller that does not wait.
    fn tried(
        &mut self,
        number: u64,
        want: Want,
        mut target: Box<PermitTarget>,
        (mark, is_again): (Mark, bool),
        answered: Answered,
        now: Moment,
    ) {
        let sent = answered.sent();
        let answer = match answered.read(|reply| target.acquire(AskKind::First, "").answer(reply)) {
            Ok(answer) => answer,
            Err(Unanswered { error, connection }) => {
                let unknown = matches!(error, CallError::Unknown(_));
                if unknown {
                    self.inbox.give_up(now.instant(), &want.keys, &want.id);
                    self.release_later(target.release(lost(connection), now.instant()), None, now);
                }
                return self.nothing(&want, Why::Ended(error.into()), unknown);
            }
        };
        let is_doubtful = target.is_doubtful(AskKind::Last, &answer, sent.repeated, target.entry.floor);
        let is_overtaken = target.is_of_released(&answer, target.entry.floor)
            || self.outbox.is_overtaken(want.keys.list()[0].as_bytes(), mark);
        if is_doubtful && !is_again && is_overtaken {
            let until = self.read_timeout.map(|time| now.instant() + time);
            let (since, then) = (now.instant(), Then::TryAgain(target));
            return self.settle(
                number,
                Settles { want, since, until, after: Some(mark), only_own: false, sends: None, then },
                now,
            );
        }
        let (result, gives_back) = target.at_once(answer, sent, now);
        if gives_back {
            // In the background. For the server this is the same as in the thread of the caller.
            self.release_later(target.release(LostCalls::default(), now.instant()), None, now);
        }
        match result {
            Ok(granted) => self.granted(&want, granted, false, now),
            Err(NotGranted::TimedOut(denied)) => self.nothing(&want, Why::Denied(denied), false),
            Err(error) => self.nothing(&want, Why::Ended(error), false),
        }
    }
}
