//! Which callers may join a bounded line.

use super::{Run, number};
use crate::ledger::{Check, broken};
use crate::messages::grants_in;
use crate::model::{Ask, Model, Waiter, channel};

impl Run<'_> {
    /// Checks three rules: no caller joins behind as many live waiters as it allows; no caller is refused
    /// while fewer are in line; a waiter in line keeps its place. `before`: the model before the call, if
    /// known. `waiting`: the length of the line now.
    pub(super) fn check_line(
        &self,
        ask: &Ask,
        words: &[String],
        before: Option<&Model>,
        messages: &[(String, String)],
        waiting: u64,
    ) -> Check {
        if ask.wait_ms == 0 || ask.permits.is_none() {
            return Ok(());
        }
        let was_in_line = before.is_some_and(|before| before.place(&ask.id).is_some());
        let nothing = Model::default();
        let is_known = was_in_line || before.unwrap_or(&nothing).ticket_of(ask, self.micros) > 0;
        match words[0].as_str() {
            "denied" if is_known || ask.max_waiting == 0 => {
                broken("line", format!("{} was refused a place: {words:?}", ask.id))
            }
            "denied" if waiting < ask.max_waiting => {
                let text = format!("{} is refused while {waiting} of {} wait", ask.id, ask.max_waiting);
                broken("line", text)
            }
            "queued" if !is_known && ask.max_waiting > 0 => {
                let Some(before) = before else {
                    return Ok(());
                };
                let granted = grants_in(messages);
                let (ticket, limit) = (number(words, 1), number(words, 5).unwrap_or(0));
                let stays = |waiter: &&Waiter| {
                    let listens = waiter.inbox.is_empty() || (self.listens)(channel(&waiter.inbox));
                    let is_served = granted.iter().any(|(id, ..)| *id == waiter.id);
                    let is_ahead = Some(waiter.ticket) <= ticket && !is_served;
                    listens
                        && is_ahead
                        && waiter.patience_until > self.now()
                        && u64::from(waiter.permits) <= limit
                };
                let front = before.queue.iter().filter(stays);
                match front.count() as u64 {
                    front if front < ask.max_waiting => Ok(()),
                    front => {
                        broken("line", format!("{} joins behind {front} of {}", ask.id, ask.max_waiting))
                    }
                }
            }
            _ => Ok(()),
        }
    }
}
