//! One semaphore of the world: its model, its ledger (the replies and messages to clients), and its keys.

use crate::keys::State;
use crate::ledger::{Check, Ledger, Violation, broken};
use crate::model::Model;
use crate::protocol::keys::Keys;
use luagate_memory::{Server, Store};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gate {
    pub(crate) keys: Keys,
    pub model: Model,
    pub ledger: Ledger,
    /// A key was lost or restored alone: the holders are unknown until the scripts have reset the state. The
    /// line is known once they have suspended granting.
    doubt: bool,
    /// Which of `meta` and `holders` were lost since a script last checked.
    lost: [bool; 2],
}

impl Gate {
    pub fn semaphore(name: &str) -> Gate {
        Gate::on(Keys::semaphore("luagate", name).unwrap())
    }

    pub fn mutex(name: &str) -> Gate {
        Gate::on(Keys::mutex("luagate", name).unwrap())
    }

    fn on(keys: Keys) -> Gate {
        Gate { keys, model: Model::default(), ledger: Ledger::default(), doubt: false, lost: [false; 2] }
    }

    pub fn is_in_doubt(&self) -> bool {
        self.doubt
    }

    /// The model could not predict this call, so it continues from the content of the keys afterwards.
    pub fn read_model(&mut self, server: &mut Server) {
        self.model = State::read(server, &self.keys).as_ref().map(State::to_model).unwrap_or_default();
    }

    /// The server restarted with the data it had when `older` was the state of this semaphore, or empty.
    pub fn come_back(&mut self, older: Option<&Gate>) {
        let fences = std::mem::take(&mut self.ledger);
        *self = match older {
            Some(older) => older.clone(),
            None => Gate::on(self.keys.clone()),
        };
        self.ledger.forget_others(&self.model);
        self.ledger.take_fences(&fences);
    }

    /// Replaces one key by its version in another store, or does nothing if the scripts could not notice it:
    /// the same number of other entries, or no record of the leases would be left. Returns whether it did.
    pub fn replace_key(&mut self, server: &mut Server, key: usize, by: &Store) -> bool {
        let before = server.store();
        let (micros, evicts) = (before.micros(), by.key_names().next().is_none());
        server.with_store(|store| store.restore_key(self.keys.list()[key].as_bytes(), by));
        let state = State::read(server, &self.keys);
        let is_noticed = state
            .as_ref()
            .is_none_or(|state| !state.is_consistent(micros / 1_000) && !state.overlooks_queue());
        let one_is_left = key == 2 || !self.lost[1 - key];
        if server.store() == before || !is_noticed || !one_is_left || self.doubt && !evicts {
            server.set_store(before);
            return false;
        }
        if key == 0 {
            self.ledger.forget_fences();
        }
        if key == 1 {
            self.ledger.forget_permanent();
        }
        if state.is_none() {
            self.model = Model::default();
            (self.doubt, self.lost) = (false, [false; 2]);
            return true;
        }
        // The key brought leases back, or an expiry that a clock step had moved far ahead.
        let known = state.as_ref().and_then(State::latest_end).unwrap_or(0);
        let expiry = state.map_or(0, |state| state.expiry);
        self.ledger.latest_end = self.ledger.latest_end.max(known);
        self.ledger.latest = self.ledger.latest.max(known).max(expiry);
        self.doubt = true;
        self.model.queue.clear(); // the next call removes them
        if key < 2 {
            self.lost[key] = true;
        }
        true
    }

    /// Before the clock steps: what has ended and was taken back stays ended, whatever the clock shows then.
    pub fn clock_steps(&mut self, now: u64) {
        let (model, doubt) = (&self.model, self.doubt);
        self.ledger.forget_ended(now, doubt, |id| !doubt && model.holders.contains_key(id));
        self.ledger.forget_past(now);
    }

    /// The number of permits in use. A minimum hold that was over begins again if the clock steps back before
    /// the server takes its permits back.
    pub fn in_use(&self, now: u64) -> u32 {
        let again = self.model.holders.iter().filter(|(id, holder)| {
            let is_known = self.ledger.holders.contains_key(*id) || self.ledger.is_lasting(now, holder.fence);
            !is_known && holder.lives(now)
        });
        self.ledger.in_use(now) + again.map(|(_, holder)| holder.permits).sum::<u32>()
    }

    /// Whether any of its keys exists.
    pub fn is_there(&self, server: &mut Server) -> bool {
        State::read(server, &self.keys).is_some()
    }

    /// Keys may have expired. Invariant 6: not while a permit is held or a waiter is in line, nor if the
    /// limit is pinned.
    pub fn time_passed(&mut self, server: &mut Server, now: u64) -> Check {
        let meta = self.keys.list()[0].as_bytes();
        let has_meta = server.with_store(|store| store.expires_at(meta).is_some());
        if self.doubt {
            if !has_meta {
                self.ledger.forget_fences(); // also if `holders` was restored and outlives it
            }
            if !self.is_there(server) {
                (self.doubt, self.lost, self.model) = (false, [false; 2], Model::default());
            }
            return Ok(());
        }
        if has_meta || !self.model.exists {
            return Ok(());
        }
        if let Some((id, entry)) = self.ledger.live(now).next() {
            return broken("nothing left behind", format!("the state is gone while {id} holds {entry:?}"));
        }
        if let Some(text) = self.ledger.minimum_hold(now, |_| false) {
            return broken(
                "nothing left behind",
                format!("the state is gone before the minimum hold ends of {text}"),
            );
        }
        if let Some(waiter) =
            self.model.queue.iter().find(|waiter| !self.ledger.is_brief && waiter.patience_until > now)
        {
            return broken("nothing left behind", format!("the state is gone while {waiter:?} waits"));
        }
        if self.model.pinned {
            return broken("nothing left behind", "the state is gone with a limit that was pinned");
        }
        self.model = Model::default();
        self.ledger.forget_fences();
        Ok(())
    }

    /// Checks that a client which believes that it holds a permit does hold it, for that long; `None`: for
    /// ever.
    pub fn check_belief(
        &self,
        id: &str,
        permits: u32,
        fence: u64,
        left: Option<Duration>,
        micros: u64,
    ) -> Check {
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(());
        }
        let end = left.map(|left| micros + left.as_micros() as u64);
        let entry = self.ledger.holders.get(id);
        let holds = entry.is_some_and(|entry| {
            let lives = match (entry.ends, end) {
                (Some(ends), Some(end)) => ends * 1_000 >= end,
                (ends, _) => ends.is_none(),
            };
            entry.fence == fence && entry.permits >= permits && lives
        });
        if holds {
            return Ok(());
        }
        let text = format!(
            "{id} believes that it holds {permits} with fence {fence} for {left:?}; the ledger has {entry:?}"
        );
        broken("belief", text)
    }

    /// Compares the keys with the model. After a loss the model is read anew once the scripts have reset the
    /// state.
    pub fn check_keys(&mut self, server: &mut Server, now: u64) -> Result<Option<State>, Violation> {
        let state = State::read(server, &self.keys);
        if !self.doubt {
            match &state {
                Some(state) => state.check(&self.model, &self.ledger)?,
                None if self.model.exists => return broken("state", "the state is missing"),
                None => {}
            }
            return Ok(state);
        }
        let is_consistent = state.as_ref().is_none_or(|state| state.is_consistent(now));
        let model = state.as_ref().filter(|_| is_consistent).map(State::to_model).unwrap_or_default();
        self.model.queue.clone_from(&model.queue);
        if is_consistent {
            self.lost = [false; 2];
            state.as_ref().map_or(Ok(()), |state| state.check_suspended(self.ledger.latest.max(now)))?;
        }
        if is_consistent && state.as_ref().is_none_or(|state| !state.suspended && state.knows_queue()) {
            self.doubt = false;
            self.model = model;
            let forgotten = self.ledger.live(now).find(|(id, _)| !self.model.holders.contains_key(*id));
            if let Some((id, entry)) = forgotten {
                return broken("loss", format!("granting resumed while {id} holds {entry:?}"));
            }
            if let Some(text) = self.ledger.minimum_hold(now, |fence| self.model.knows(fence)) {
                return broken("loss", format!("granting resumed before the minimum hold ends of {text}"));
            }
            if self.model.in_use() > self.model.limit {
                return broken("limit", format!("after a loss: {:?}", self.model));
            }
            self.ledger.forget_others(&self.model);
        }
        Ok(state)
    }
}
