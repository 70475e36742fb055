//! Callers that want something: what `src/wait/mod.rs` does around a waiter.

mod caller;
mod waiting;

use super::flights::{Answered, Connection, Unanswered};
use super::{Client, Outcome, Patience, Thread, Want};
use crate::protocol::call::Call;
use crate::protocol::inbox::Mailbox;
use crate::protocol::keys::LatchKeys;
use crate::protocol::lease::Moment;
use crate::protocol::releases::{PendingRelease, Settled};
use crate::protocol::waiter::{
    Action, ActionOf, AskKind, GiveBack, LAST_CALL, LatchTarget, PermitTarget, QueueEntry, WaitTarget, Waiter,
};
pub(crate) use caller::{Caller, Settles};
use luagate::errors::CallError;
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
        if want.lease.own_id {
            let time = match want.patience {
                Patience::For(ms) => Duration::from_millis(ms),
                Patience::None | Patience::Forever => super::READ_TIMEOUT,
            };
            let settles = Settles { want, since: now.instant(), until: now.instant() + time, released: None };
            self.settle(number, settles, now);
        } else {
            self.begin(number, want, now.instant(), now);
        }
        number
    }

    /// Begins once no release of the id is pending.
    fn settle(&mut self, number: u64, mut settles: Settles, now: Moment) {
        let Want { keys, id, .. } = &settles.want;
        match self.releases.settle(keys.list()[0].as_bytes(), Some(id), now.instant()) {
            Settled::Yes => return self.begin(number, settles.want, settles.since, now),
            Settled::After(pending) => {
                let (until, thread) = (Some(settles.until), Thread::Caller(number));
                settles.released = Some(self.send_release(thread, pending, until, now));
            }
            Settled::Soon if settles.until <= now.instant() => {
                let why = "an earlier release is not confirmed";
                return self.nothing(&settles.want, why, false);
            }
            Settled::Soon => {}
        }
        self.callers.insert(number, Caller::Settles(Box::new(settles)));
    }

    /// Another thread has its reply.
    pub(super) fn settle_all(&mut self, now: Moment) {
        let waits = |(number, caller): (&u64, &Caller)| match caller {
            Caller::Settles(settles) if settles.released.is_none() => Some(*number),
            _ => None,
        };
        let waiting: Vec<u64> = self.callers.iter().filter_map(waits).collect();
        for number in waiting {
            if let Some(Caller::Settles(settles)) = self.callers.remove(&number) {
                self.settle(number, *settles, now);
            }
        }
    }

    fn begin(&mut self, number: u64, want: Want, since: Instant, now: Moment) {
        let target = want.target();
        if target.check().is_err() {
            return self.nothing(&want, "invalid", false);
        }
        let deadline = match want.patience {
            Patience::None => {
                let call = target.acquire(AskKind::First, "").pack();
                self.send(Thread::Caller(number), &[call], None, None, now);
                let target = Box::new(target);
                self.callers.insert(number, Caller::Tries { want, target });
                return;
            }
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
            return self.nothing(&want, "is already waiting", false);
        };
        let waiter = Waiter::new(target, deadline, super::OUTAGE, now.instant());
        let mut waiting = Waiting::new(waiter, mailbox, registered, since);
        let action = waiting.waiter.start(self.opened);
        let action = waiting.go_on(action, now);
        self.wait_on(number, Box::new(waiting), want, action, now);
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
        let call = waiting.waiter.target.call(ask, &inbox.unwrap_or_default());
        self.send(Thread::Caller(number), &[call], until, None, now);
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
                        let is_excused = waiting.excused_until.is_some();
                        return self.granted(&want, granted, is_excused, now);
                    }
                    Err(error) => format!("{error:?}"),
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
        why: String,
        give_back: GiveBack,
        now: Moment,
    ) {
        let is_over = match want.patience {
            Patience::For(ms) => waiting.since + Duration::from_millis(ms) <= now.instant(),
            Patience::None | Patience::Forever => false,
        };
        if why.starts_with("TimedOut") && !is_over {
            self.break_promise("timeout", format!("{} ends too early: {why}", want.id));
        }
        if why.starts_with("LineFull") && want.max_waiting == 0 {
            self.break_promise("line", format!("{} is not bounded by max_waiting: {why}", want.id));
        }
        if give_back.now {
            let until = now.instant() + LAST_CALL;
            let pending = self.give_up(&waiting, None, now);
            let thread = Thread::Caller(number);
            let released = self.send_release(thread, pending, Some(until), now);
            let released = Box::new(released);
            let caller = Caller::GivesBack { waiting, want, why, released, until, later: give_back.later };
            self.callers.insert(number, caller);
            return;
        }
        if give_back.later {
            let pending = self.give_up(&waiting, waiting.connection, now);
            self.release_later(pending, now);
        }
        self.inbox.remove(&want.id, &waiting.number);
        self.nothing(&want, &why, waiting.unknown);
    }

    /// From now on a grant that arrives for this wait is released, until the release that this returns is confirmed.
    fn give_up(
        &mut self,
        waiting: &Waiting<PermitTarget>,
        connection: Option<Connection>,
        now: Moment,
    ) -> PendingRelease<Connection> {
        let pending = waiting.waiter.target.release(connection, now.instant());
        let given_up = self.inbox.give_up(now.instant(), &pending.keys, &pending.id);
        PendingRelease { given_up: given_up.filter(|_| !waiting.is_unsure), ..pending }
    }

    /// Reports to the caller that it has nothing.
    pub(super) fn nothing(&mut self, want: &Want, why: &str, unknown: bool) {
        self.outcomes.push(Outcome::Nothing {
            keys: want.keys.clone(),
            id: want.id.clone(),
            why: why.to_owned(),
            unknown,
        });
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

    /// A caller has the reply to its call.
    pub(super) fn answered(&mut self, number: u64, answered: Answered, now: Moment) {
        match self.callers.remove(&number) {
            Some(Caller::Tries { want, target }) => self.tried(&want, *target, answered, now),
            Some(Caller::TriesAll(wants)) => self.tried_all(&wants, answered, now),
            Some(Caller::Waits(mut waiting, want)) => {
                let action = waiting.answered(answered, now);
                self.wait_on(number, waiting, want, action, now);
            }
            Some(mut caller @ Caller::Watches { .. }) => {
                if let Caller::Watches { waiting, .. } = &mut caller {
                    let action = waiting.answered(answered, now);
                    self.watch_on(number, caller, action, now);
                }
            }
            Some(Caller::Settles(mut settles)) => {
                let (until, thread) = (Some(settles.until), Thread::Caller(number));
                match settles.released.take() {
                    Some(released) => match self.release_answered(thread, released, answered, until, now) {
                        Ok(None) => self.settle(number, *settles, now),
                        Ok(released) => {
                            settles.released = released;
                            self.callers.insert(number, Caller::Settles(settles));
                        }
                        Err(pending) => {
                            self.release_later(*pending, now);
                            let why = "an earlier release failed";
                            self.nothing(&settles.want, why, false);
                        }
                    },
                    None => self.settle(number, *settles, now),
                }
            }
            Some(Caller::GivesBack { waiting, want, why, released, until, later }) => {
                let thread = Thread::Caller(number);
                match self.release_answered(thread, *released, answered, Some(until), now) {
                    Ok(Some(released)) => {
                        let released = Box::new(released);
                        let caller = Caller::GivesBack { waiting, want, why, released, until, later };
                        self.callers.insert(number, caller);
                        return;
                    }
                    Ok(None) => {}
                    Err(pending) => self.release_later(*pending, now),
                }
                let give_back = GiveBack { now: false, later };
                self.wait_over(number, waiting, want, why, give_back, now);
            }
            Some(Caller::Changes(change)) => self.changed(change, answered, now),
            None => {}
        }
    }

    /// The reply to a caller that does not wait.
    fn tried(&mut self, want: &Want, mut target: PermitTarget, answered: Answered, now: Moment) {
        let sent = answered.sent();
        let answer = answered.read(|reply| target.acquire(AskKind::First, "").answer(reply));
        let (result, gives_back) = match answer {
            Ok(answer) => target.at_once(answer, sent),
            Err(Unanswered { error, connection }) => {
                let unknown = matches!(error, CallError::Unknown(_));
                if unknown {
                    self.release_later(target.release(connection, now.instant()), now);
                }
                return self.nothing(want, &format!("{error:?}"), unknown);
            }
        };
        if gives_back {
            // In the background. For the server this is the same as in the thread of the caller.
            self.release_later(target.release(None, now.instant()), now);
        }
        match result {
            Ok(granted) => self.granted(want, granted, false, now),
            Err(error) => self.nothing(want, &format!("{error:?}"), false),
        }
    }
}
