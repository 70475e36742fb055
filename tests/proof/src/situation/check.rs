//! Promises that must hold in every situation.

use super::Situation;
use crate::ledger::{Check, broken};
use crate::model::{channel, is_cooling};
use crate::protocol::keeper::Number;
use std::sync::Arc;

impl Situation {
    /// Invariant 10: a script that frees permits, or finds free ones, leaves none unused that a live waiter
    /// could have.
    pub(super) fn check_wake_up(&self) -> Check {
        let kept = &self.sealed.kept;
        let now = kept.now();
        let in_use = kept.gate.ledger.in_use(now);
        let model = &kept.gate.model;
        let listens = |inbox: &str| {
            self.parties.iter().any(|party| party.client.listens && party.client.channel == channel(inbox))
        };
        let first = model.queue.iter().find(|waiter| {
            let lives = waiter.inbox.is_empty() || listens(&waiter.inbox);
            lives && waiter.patience_until > now
        });
        match first {
            // Free permits are reserved for a waiter without an inbox.
            Some(waiter) if !waiter.inbox.is_empty() && in_use + waiter.permits <= model.limit => {
                let text = format!("{} waits, although enough permits are free: {model:?}", waiter.id);
                broken("wake-up", text)
            }
            _ => Ok(()),
        }
    }

    /// Checks three rules: a client that believes that it holds a permit does hold it, for that long; the
    /// believed permits do not exceed the limit; a client that has given up has nothing.
    pub(super) fn check(&mut self) -> Check {
        let (now, kept) = (self.moment(), self.sealed.kept.clone());
        let mut believed = 0;
        for party in &mut self.parties {
            if let Some(violation) = &party.client.violation {
                return Err(violation.clone());
            }
            if !party.client.permits.is_empty() {
                let client = &mut Arc::make_mut(party).client;
                let numbers: Vec<Number> = client.permits.keys().copied().collect();
                for number in numbers {
                    let left = client.left(number, now);
                    let permit = &client.permits[&number];
                    let identity = &permit.identity;
                    if !permit.is_had || permit.seen_lost || left.is_some_and(|l| l.is_zero()) {
                        continue;
                    }
                    let (id, fence) = (&identity.id, identity.fence);
                    kept.gate.check_belief(id, permit.least, fence, left, kept.micros())?;
                    believed += permit.least;
                }
            }
            if party.client.is_alive && party.is_at_rest() {
                let own = format!("c{}/", party.client.name);
                let is_own = |id: &str| id.starts_with(&own) && !party.late.contains(id);
                let model = &kept.gate.model;
                let holders = model.holders.iter();
                let mut holders = holders.filter(|(id, holder)| holder.lives(kept.now()) && !is_cooling(id));
                let mut queue = model.queue.iter().filter(|waiter| waiter.patience_until > kept.now());
                let has = holders.any(|(id, _)| is_own(id)) || queue.any(|w| is_own(&w.id));
                if has {
                    let text = format!("c{} gave up, but still has something: {model:?}", party.client.name);
                    return broken("nothing left behind", text);
                }
            }
        }
        if kept.gate.model.exists && believed > kept.gate.model.limit {
            return broken("limit", format!("clients believe that they hold {believed} permits"));
        }
        Ok(())
    }
}
