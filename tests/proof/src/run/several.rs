//! Calls to several semaphores.

use super::{CALLS, CALLS_EACH, CALLS_IN_DOUBT, Done, Run, compare, note_ends, number};
use crate::call::{Call, Sent};
use crate::gate::Gate;
use crate::keys::State;
use crate::ledger::{Entry, Violation, broken};
use crate::messages::{compare_messages, grants_in};
use crate::model::{AskOne, Effects, Model, Moment, is_cooling};
use crate::scripts::words_of;

impl Run<'_> {
    /// A call to several semaphores.
    pub fn several(mut self, gates: &mut [Gate], sent: &Sent) -> Result<Done, Violation> {
        let call = &sent.call();
        let Call::TryAll { id, asked } = call else {
            return broken("simulation", "not a call to several semaphores");
        };
        let moment = Moment { micros: self.micros, listens: self.listens };
        let mut effects = Effects::default();
        let mut models: Vec<Model> = gates.iter().map(|gate| gate.model.clone()).collect();
        let mut all: Vec<&mut Model> = models.iter_mut().collect();
        let expected = Model::try_acquire_several(&mut all, id, asked, &moment, &mut effects);
        if gates.iter().any(Gate::is_in_doubt) {
            return self.several_in_doubt(gates, sent, id, asked);
        }
        let entries = gates.iter().map(|gate| gate.model.queue.len() + gate.model.holders.len());
        let most = CALLS * gates.len() as u64 + CALLS_EACH * entries.sum::<usize>() as u64;
        let may_fail = expected.is_err() || self.full;
        let (raw, messages) = self.execute(sent, false, may_fail, most)?;
        let reply = words_of(&raw);
        let mut grants = 0;
        if !reply.as_ref().is_err_and(|text| text.starts_with("OOM")) {
            compare(&expected, &reply)?;
            let queue = gates.iter().flat_map(|gate| gate.model.queue.clone()).collect();
            let waited = Model { queue, ..Model::default() };
            compare_messages(&effects.reported, &messages, &waited, self.now())?;
            for ((gate, model), ask) in gates.iter_mut().zip(models).zip(asked) {
                let before = std::mem::replace(&mut gate.model, model);
                note_ends(gate, &before, self.now() + ask.lease_ms.max(ask.at_least_ms));
                grants += self.record_changes(gate, &before, call)?;
            }
        }
        let mut states = Vec::new();
        for gate in gates {
            states.push(gate.check_keys(self.server, self.micros / 1_000)?);
        }
        Ok(Done { reply, raw, messages, grants, states })
    }

    /// One of them lost a key, so the model cannot predict the call for any of them. Only the
    /// replies and messages are checked.
    fn several_in_doubt(
        mut self,
        gates: &mut [Gate],
        sent: &Sent,
        id: &str,
        asked: &[AskOne],
    ) -> Result<Done, Violation> {
        let entries = gates.iter().map(|gate| gate.model.queue.len() + gate.model.holders.len());
        let each = CALLS + CALLS_IN_DOUBT;
        let most = each * gates.len() as u64 + CALLS_EACH * entries.sum::<usize>() as u64;
        let (raw, messages) = self.execute(sent, false, true, most)?;
        let reply = words_of(&raw);
        let (mut grants, mut states) = (0, Vec::new());
        for (place, gate) in gates.iter_mut().enumerate() {
            let (doubt, before) = (gate.is_in_doubt(), gate.model.clone());
            if let Ok(words) = &reply {
                grants += self.record_row(gate, doubt, words, (id, place, &asked[place]), &messages)?;
            }
            if !doubt {
                gate.read_model(self.server);
            }
            note_ends(gate, &before, self.now() + asked[place].lease_ms.max(asked[place].at_least_ms));
            states.push(gate.check_keys(self.server, self.now())?);
        }
        Ok(Done { reply, raw, messages, grants, states })
    }

    /// Invariants 1 and 3 of one semaphore, by the reply to the caller and the grant messages to waiters.
    fn record_row(
        &mut self,
        gate: &mut Gate,
        doubt: bool,
        words: &[String],
        (id, place, ask): (&str, usize, &AskOne),
        messages: &[(String, String)],
    ) -> Result<u64, Violation> {
        let state = State::read(self.server, &gate.keys);
        let mut granted = Vec::new();
        if ["granted", "held"].contains(&words[0].as_str()) {
            let number = |at: usize| number(words, 4 + 7 * place + at);
            let (permits, fence, ends) = (number(0).unwrap_or(0) as u32, number(1).unwrap_or(0), number(2));
            if gate.ledger.is_new(self.micros, id, fence) {
                granted.push((id.to_owned(), Entry { permits, fence, ends, at_least_ms: ask.at_least_ms }));
            }
        }
        for (id, permits, fence, ends) in grants_in(messages) {
            if state.as_ref().is_some_and(|state| state.holds(&id, fence)) {
                let at_least_ms = gate.ledger.served(&id);
                granted.push((id, Entry { permits, fence, ends, at_least_ms }));
            }
        }
        granted.sort_by_key(|(_, entry)| entry.fence);
        if doubt
            && !granted.is_empty()
            && let Some((id, entry)) = gate.ledger.live(self.now()).next()
        {
            return broken("loss", format!("granted while {id} is known to hold {entry:?}"));
        }
        let limit = if doubt { u32::MAX } else { state.map_or(u32::MAX, |state| state.limit) };
        for (id, entry) in &granted {
            gate.ledger.grant(self.micros, id, entry.clone(), limit)?;
        }
        Ok(granted.len() as u64)
    }

    /// Invariants 1 to 3 of one semaphore, by how the model changed. The model replied as the script did.
    fn record_changes(&self, gate: &mut Gate, before: &Model, call: &Call) -> Result<u64, Violation> {
        for id in before.holders.keys() {
            if !gate.model.holders.contains_key(id) {
                gate.ledger.keep(id, 0, 0, false);
            }
        }
        let holders = gate.model.holders.iter();
        let is_new = |id: &str, fence| before.holders.get(id).is_none_or(|holder| holder.fence != fence);
        let granted = holders.filter(|(id, holder)| !is_cooling(id) && is_new(id, holder.fence));
        let mut granted: Vec<(String, Entry)> = granted
            .map(|(id, holder)| {
                let at_least_ms = holder.least_end.saturating_sub(self.now());
                let entry =
                    Entry { permits: holder.permits, fence: holder.fence, ends: holder.ends, at_least_ms };
                (id.clone(), entry)
            })
            .collect();
        granted.sort_by_key(|(_, entry)| entry.fence);
        self.check_turns(gate, before, call, &granted)?;
        for (id, entry) in &granted {
            gate.ledger.served(id);
            gate.ledger.grant(self.micros, id, entry.clone(), gate.model.limit)?;
        }
        Ok(granted.len() as u64)
    }
}
