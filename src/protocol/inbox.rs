//! Whom a message is for: a wait that is under way, or one that was given up, whose grant is to be released.
//!
//! A message is a hint that happens to carry the grant. It may be lost, come late, or twice; every waiter also asks
//! again by itself. It may also be forged, since whoever knows the channel may publish there. So every wait in line has a
//! secret, which only this client and the semaphore's keys know, and a message that is not signed with it does not count.

use super::id::secret_of;
use super::keys::Keys;
use super::message::Received;
use super::releases::{PendingRelease, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a grant may still come for a wait that was given up without an answer.
const MEMORY: Duration = Duration::from_secs(120);

/// All waits of a client, and those that were given up. `W`: what the driver has of a wait.
#[derive(Clone, Debug)]
pub(crate) struct Inbox<W> {
    waits: BTreeMap<String, Vec<Wait<W>>>,
    pub(crate) given_up: BTreeMap<String, Vec<GivenUp>>,
}

#[derive(Clone, Debug)]
struct Wait<W> {
    /// The first key.
    key: Arc<str>,
    secret: Option<String>,
    wait: Arc<W>,
}

/// A wait that was given up without an answer, and until when its grant may still come.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    keys: Keys,
    secret: String,
    pub(crate) until: Instant,
}

impl<W> Default for Inbox<W> {
    fn default() -> Inbox<W> {
        Inbox { waits: BTreeMap::new(), given_up: BTreeMap::new() }
    }
}

impl<W> Inbox<W> {
    /// Adds a wait in line. `make` makes it, with its own secret, which comes from these random bits. `None`: this id waits for
    /// this semaphore already.
    pub(crate) fn add(
        &mut self,
        keys: &Keys,
        id: &str,
        random: Uuid,
        make: impl FnOnce(String) -> Arc<W>,
    ) -> Option<Arc<W>> {
        if self.find(keys, id).is_some() {
            return None;
        }
        self.forget(id, |given_up| given_up.keys == *keys);
        let secret = secret_of(random);
        let wait = make(secret.clone());
        self.insert(id, keys.meta.clone(), Some(secret), &wait);
        Some(wait)
    }

    /// Adds one of any number of waits for the same latch.
    pub(crate) fn add_shared(&mut self, key: &str, wait: &Arc<W>) {
        self.insert(key, key.into(), None, wait);
    }

    fn insert(&mut self, id: &str, key: Arc<str>, secret: Option<String>, wait: &Arc<W>) {
        let same = self.waits.entry(id.to_owned()).or_default();
        same.push(Wait { key, secret, wait: wait.clone() });
    }

    pub(crate) fn remove(&mut self, id: &str, wait: &Arc<W>) {
        if let Some(same) = self.waits.get_mut(id) {
            same.retain(|other| !Arc::ptr_eq(&other.wait, wait));
            if same.is_empty() {
                self.waits.remove(id);
            }
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<W>> {
        self.waits.values().flatten().map(|wait| &wait.wait)
    }

    /// Those who wait with this id.
    pub(crate) fn of(&self, id: &str) -> Vec<Arc<W>> {
        let same = self.waits.get(id).into_iter().flatten();
        same.map(|wait| wait.wait.clone()).collect()
    }

    /// The wait of this id for this semaphore.
    fn find(&self, keys: &Keys, id: &str) -> Option<&Wait<W>> {
        let mut same = self.waits.get(id).into_iter().flatten();
        same.find(|wait| wait.key == keys.meta)
    }

    /// Whether a grant may still come for a wait that was given up.
    pub(crate) fn has_given_up(&self, now: Instant) -> bool {
        let mut given_up = self.given_up.values().flatten();
        given_up.any(|wait| wait.until > now)
    }

    /// Remembers the wait that is under way, so that a grant which still comes for it is released. Where none is under
    /// way the server was told no inbox, and no grant can come.
    pub(crate) fn give_up(&mut self, now: Instant, keys: &Keys, id: &str) {
        self.given_up.retain(|_, same| {
            same.retain(|wait| wait.until > now);
            !same.is_empty()
        });
        let secret = self.find(keys, id).and_then(|wait| wait.secret.clone());
        if let Some(secret) = secret {
            let same = self.given_up.entry(id.to_owned()).or_default();
            same.push(GivenUp { keys: keys.clone(), secret, until: now + MEMORY });
        }
    }

    /// Forgets those of `id` that were given up and that `is_it` tells, and returns the last of them.
    fn forget(&mut self, id: &str, mut is_it: impl FnMut(&GivenUp) -> bool) -> Option<GivenUp> {
        let same = self.given_up.get_mut(id)?;
        let forgotten = same.extract_if(.., |wait| is_it(wait)).last();
        if same.is_empty() {
            self.given_up.remove(id);
        }
        forgotten
    }

    /// The release of a grant to a wait that was given up, if the message tells of one.
    pub(crate) fn release_of<C>(&mut self, received: &Received) -> Option<PendingRelease<C>> {
        let message = &received.message;
        if message.fence == 0 {
            return None;
        }
        let wait = self.forget(&message.id, |wait| received.is_signed_with(&wait.secret))?;
        Some(PendingRelease {
            keys: wait.keys,
            id: message.id.clone(),
            target: Target::Fence(message.fence),
            connection: None,
            until: Some(wait.until),
        })
    }
}
