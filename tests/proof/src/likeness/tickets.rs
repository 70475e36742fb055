//! The tickets that a server and its clients know.

use crate::call::Call;
use crate::client::waits::Caller;
use crate::scripts::words_of;
use crate::situation::Situation;
use std::collections::BTreeSet;

/// All known tickets.
pub(super) fn tickets(situation: &Situation) -> BTreeSet<u64> {
    let queue = situation.sealed.kept.gate.model.queue.iter();
    let mut tickets: BTreeSet<u64> = queue.map(|waiter| waiter.ticket).collect();
    for party in &situation.parties {
        let callers = party.client.callers.values();
        tickets.extend(callers.filter_map(|caller| match caller {
            Caller::Waits(waiting, _) | Caller::GivesBack { waiting, .. } => {
                Some(waiting.waiter.target.entry.ticket)
            }
            _ => None,
        }));
        for flight in &party.client.flights {
            for sent in &flight.calls {
                if let Call::Acquire(ask) = sent.call() {
                    tickets.insert(ask.ticket);
                }
            }
            for reply in flight.replies.iter().flatten() {
                if let Ok(words) = words_of(reply)
                    && words[0] == "queued"
                {
                    tickets.insert(number(&words, 1));
                }
            }
        }
    }
    tickets.remove(&0);
    tickets
}

pub(super) fn number(words: &[String], at: usize) -> u64 {
    words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0)
}
