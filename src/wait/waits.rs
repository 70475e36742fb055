//! Who waits for messages, and what each of them hears.

use crate::clock::{Bell, Clock};
use crate::protocol::lease::Moment;
use crate::protocol::message::{Message, Received};
use crate::protocol::name::{self, Keys};
use crate::sync::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a grant may still come for a wait that was given up without an answer.
const MEMORY: Duration = Duration::from_secs(120);

/// What a waiter hears.
pub(crate) enum News {
    /// Signed with the secret of this wait.
    Message {
        message: Message,
        received: Moment,
    },
    /// It is worth asking: the subscription was lost and is back, so whatever came between was missed; or somebody says
    /// that a latch has opened.
    Called,
    Cancelled,
    /// Nothing until the time was over.
    Silence,
}

/// One wait that is under way.
pub(crate) struct Wait {
    id: String,
    meta: String,
    /// `None` for a latch, whose messages only say that it is worth asking.
    secret: Option<String>,
    state: Mutex<Heard>,
    bell: Bell,
    clock: Clock,
}

#[derive(Default)]
struct Heard {
    messages: VecDeque<(Message, Moment)>,
    called: bool,
    cancelled: bool,
    /// When it is cancelled without a call of `cancel`.
    cancelled_at: Option<Instant>,
    /// Where the last call that asked for it said that messages go.
    channel: String,
}

impl Heard {
    fn is_cancelled(&self, now: Instant) -> bool {
        self.cancelled || self.cancelled_at.is_some_and(|at| at <= now)
    }
}

impl Wait {
    /// The inbox as the scripts take it: the channel, and the secret with which they sign. From here on only what comes on this
    /// channel counts.
    pub(crate) fn inbox(&self, channel: &str) -> String {
        channel.clone_into(&mut lock(&self.state).channel);
        match &self.secret {
            Some(secret) => format!("{channel}#{secret}"),
            None => channel.to_owned(),
        }
    }

    /// Hears a message; whether it is signed for this wait. One that whoever listens too sends again is heard once at a time.
    pub(crate) fn tell(&self, channel: &str, heard: &Received, received: Moment) -> bool {
        let Some(secret) = &self.secret else {
            self.call();
            return false;
        };
        if !heard.is_signed_with(secret) {
            return false;
        }
        let mut state = lock(&self.state);
        if state.channel != channel {
            // Of a server that had the semaphore before: it may not know yet that another one has it now.
            state.called = true;
        } else if !state.messages.iter().any(|(m, _)| *m == heard.message) {
            state.messages.push_back((heard.message.clone(), received));
        }
        self.bell.ring(state);
        true
    }

    pub(crate) fn call(&self) {
        let mut state = lock(&self.state);
        state.called = true;
        self.bell.ring(state);
    }

    pub(crate) fn cancel(&self) {
        let mut state = lock(&self.state);
        state.cancelled = true;
        self.bell.ring(state);
    }

    /// Cancels it at `at`, by its own clock. Called before it hears anything.
    pub(crate) fn cancel_at(&self, at: Instant) {
        lock(&self.state).cancelled_at = Some(at);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        lock(&self.state).is_cancelled(self.clock.now())
    }

    /// The clock that it goes by.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The next news, waited for until `until`.
    pub(crate) fn hear(&self, until: Instant) -> News {
        let mut state = lock(&self.state);
        loop {
            if let Some((message, received)) = state.messages.pop_front() {
                return News::Message { message, received };
            }
            let now = self.clock.now();
            if state.is_cancelled(now) {
                return News::Cancelled;
            }
            // Once the time is over the waiter asks, which is what a call wants.
            let called = std::mem::take(&mut state.called);
            if until <= now {
                return News::Silence;
            }
            if called {
                return News::Called;
            }
            let wake = state.cancelled_at.map_or(until, |at| at.min(until));
            state = self.bell.sleep(state, Some(wake));
        }
    }
}

/// All waits of a client, and those that were given up.
#[derive(Default)]
pub(crate) struct Waits {
    by_id: HashMap<String, Vec<Arc<Wait>>>,
    given_up: HashMap<String, Vec<GivenUp>>,
}

/// A wait that was given up without an answer, and until when its grant may still come.
pub(crate) struct GivenUp {
    pub(crate) keys: Keys,
    secret: String,
    pub(crate) until: Instant,
}

impl Waits {
    /// A wait in line, with a secret of its own. `None` when this very id waits for this semaphore already.
    pub(crate) fn add(&mut self, clock: &Clock, keys: &Keys, id: &str) -> Option<Arc<Wait>> {
        if self.find(keys, id).is_some() {
            return None;
        }
        self.forget(id, |wait| wait.keys == *keys);
        let secret = name::new_secret();
        Some(self.insert(clock, id, &keys.meta, Some(secret)))
    }

    /// One of any number of waits for the same latch.
    pub(crate) fn add_shared(&mut self, clock: &Clock, key: &str) -> Arc<Wait> {
        self.insert(clock, key, key, None)
    }

    fn insert(&mut self, clock: &Clock, id: &str, meta: &str, secret: Option<String>) -> Arc<Wait> {
        let wait = Arc::new(Wait {
            id: id.to_owned(),
            meta: meta.to_owned(),
            secret,
            state: Mutex::default(),
            bell: Bell::awake(clock),
            clock: clock.clone(),
        });
        let same = self.by_id.entry(id.to_owned()).or_default();
        same.push(wait.clone());
        wait
    }

    pub(crate) fn remove(&mut self, wait: &Arc<Wait>) {
        if let Some(same) = self.by_id.get_mut(&wait.id) {
            same.retain(|other| !Arc::ptr_eq(other, wait));
            if same.is_empty() {
                self.by_id.remove(&wait.id);
            }
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Wait>> {
        self.by_id.values().flatten()
    }

    /// The wait of this id for this semaphore.
    fn find(&self, keys: &Keys, id: &str) -> Option<&Arc<Wait>> {
        let mut same = self.by_id.get(id).into_iter().flatten();
        same.find(|wait| *wait.meta == *keys.meta)
    }

    /// Remembers the wait that is under way, so that a grant which still comes for it is released. Where none is under
    /// way the server was told no inbox, and no grant can come.
    pub(crate) fn give_up(&mut self, now: Instant, keys: &Keys, id: &str) {
        self.given_up.retain(|_, same| {
            same.retain(|wait| wait.until > now);
            !same.is_empty()
        });
        let wait = self.find(keys, id);
        if let Some(secret) = wait.and_then(|wait| wait.secret.clone()) {
            let given_up = GivenUp {
                keys: keys.clone(),
                secret,
                until: now + MEMORY,
            };
            let same = self.given_up.entry(id.to_owned()).or_default();
            same.push(given_up);
        }
    }

    /// Forgets those of `id` that were given up and that `forget` tells, and returns the last of them.
    fn forget(&mut self, id: &str, mut forget: impl FnMut(&GivenUp) -> bool) -> Option<GivenUp> {
        let same = self.given_up.get_mut(id)?;
        let forgotten = same.extract_if(.., |wait| forget(wait)).last();
        if same.is_empty() {
            self.given_up.remove(id);
        }
        forgotten
    }

    /// Those who wait with this id.
    pub(crate) fn of(&self, id: &str) -> Vec<Arc<Wait>> {
        self.by_id.get(id).cloned().unwrap_or_default()
    }

    /// The wait that was given up for which this is, if it is a grant: it is to be released.
    pub(crate) fn take_given_up(&mut self, heard: &Received) -> Option<GivenUp> {
        if heard.message.fence == 0 {
            return None;
        }
        self.forget(&heard.message.id, |wait| heard.is_signed_with(&wait.secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_counts_only_where_the_wait_asked_last() {
        let clock = Clock::real();
        let keys = Keys::semaphore("luagate", "name").unwrap();
        let mut waits = Waits::default();
        let wait = waits.add(&clock, &keys, "id").unwrap();
        let inbox = wait.inbox("before");
        let secret = inbox.strip_prefix("before#").unwrap();
        let text = "id 1 2 3000 4";
        let signature = sha1_smol::Sha1::from(format!("{secret}{text}")).digest();
        let payload = format!("{text} {signature}");
        let heard = Received::read(payload.as_bytes()).unwrap();
        wait.inbox("after");
        // Far ahead, since only what is there already is heard.
        let later = clock.now() + Duration::from_secs(60);
        wait.tell("before", &heard, clock.moment());
        assert!(matches!(wait.hear(later), News::Called));
        wait.tell("after", &heard, clock.moment());
        assert!(matches!(wait.hear(later), News::Message { .. }));
    }
}
