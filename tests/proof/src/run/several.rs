//! Calls to several semaphores.

use super::{CALLS, CALLS_EACH, Done, Run, compare, note_ends};
use crate::call::{Call, Sent};
use crate::gate::Gate;
use crate::ledger::{Entry, Violation, broken};
use crate::messages::compare_messages;
use crate::model::{Effects, Model, Moment, is_cooling};
use crate::scripts::words_of;
use redis::Value;

impl Run<'_> {
    /// A call to several semaphores.
    pub fn several(mut self, gates: &mut [Gate], sent: &Sent) -> Result<Done, Violation> {
        let call = &sent.call();
        let Call::TryAll { id, asked } = call else {
            return broken("simulation", "no call to several semaphores");
        };
        let moment = Moment { micros: self.micros, listens: self.listens };
        let mut effects = Effects::default();
        let mut models: Vec<Model> = gates.iter().map(|gate| gate.model.clone()).collect();
        let mut all: Vec<&mut Model> = models.iter_mut().collect();
        let expected = Model::try_acquire_all(&mut all, id, asked, &moment, &mut effects);
        if gates.iter().any(Gate::is_in_doubt) {
            // Which of several lost a key is for the calls to one to look at.
            return Ok(Done {
                reply: Ok(vec!["-".to_owned()]),
                raw: Ok(Value::Nil),
                messages: Vec::new(),
                grants: 0,
                states: Vec::new(),
            });
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
            compare_messages(&effects.told, &messages, &waited, self.now())?;
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

    /// Invariants 1 to 3 of one of them, by how the model changed, which answered as the script did.
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
                let entry = Entry { permits: holder.permits, fence: holder.fence, ends: holder.ends, at_least_ms };
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
