//! Finds the wait that a message belongs to. The wait may be in progress, or may have been given up; then its grant is
//! released.
//!
//! A message is a hint that also contains the grant. It may be lost, delayed or repeated. Therefore each waiter also
//! asks again without a message. A message can also be forged, since any client that knows the channel can publish on
//! it. Therefore each wait in line has a secret that only this client and the semaphore's keys contain. Messages that
//! are not signed with the secret are ignored.

use super::id::secret_of;
use super::keys::Keys;
use super::message::Received;
use super::releases::{PendingRelease, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The time for which a grant may still arrive for a wait that was given up without an answer.
pub const MEMORY: Duration = Duration::from_secs(120);

/// All waits of a client, and those that were given up. `W`: the driver's data for a wait.
#[derive(Clone, Debug)]
pub struct Inbox<W> {
    waits: BTreeMap<String, Vec<Wait<W>>>,
    pub given_up: BTreeMap<String, Vec<GivenUp>>,
}

#[derive(Clone, Debug)]
struct Wait<W> {
    /// The first key.
    key: Arc<str>,
    secret: Option<String>,
    wait: Arc<W>,
}

/// A wait that was given up without an answer. Its grant may still arrive until `until`.
#[derive(Clone, Debug)]
pub struct GivenUp {
    keys: Keys,
    secret: String,
    pub until: Instant,
}

impl<W> Default for Inbox<W> {
    fn default() -> Inbox<W> {
        Inbox { waits: BTreeMap::new(), given_up: BTreeMap::new() }
    }
}

impl<W> Inbox<W> {
    /// Adds a wait in line. `make` creates it with its secret, which is made of `random`. `None`: this id already waits
    /// for this semaphore.
    pub fn add(&mut self, keys: &Keys, id: &str, random: Uuid, make: impl FnOnce(String) -> Arc<W>) -> Option<Arc<W>> {
        if self.find(keys, id).is_some() {
            return None;
        }
        self.forget(id, |given_up| given_up.keys == *keys);
        let secret = secret_of(random);
        let wait = make(secret.clone());
        self.insert(id, keys.meta.clone(), Some(secret), &wait);
        Some(wait)
    }

    /// Adds a wait for a latch. Any number of waits may be for the same one.
    pub fn add_shared(&mut self, key: &str, wait: &Arc<W>) {
        self.insert(key, key.into(), None, wait);
    }

    fn insert(&mut self, id: &str, key: Arc<str>, secret: Option<String>, wait: &Arc<W>) {
        let same = self.waits.entry(id.to_owned()).or_default();
        same.push(Wait { key, secret, wait: wait.clone() });
    }

    pub fn remove(&mut self, id: &str, wait: &Arc<W>) {
        if let Some(same) = self.waits.get_mut(id) {
            same.retain(|other| !Arc::ptr_eq(&other.wait, wait));
            if same.is_empty() {
                self.waits.remove(id);
            }
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<W>> {
        self.waits.values().flatten().map(|wait| &wait.wait)
    }

    /// All waits with this id.
    pub fn of(&self, id: &str) -> Vec<Arc<W>> {
        let same = self.waits.get(id).into_iter().flatten();
        same.map(|wait| wait.wait.clone()).collect()
    }

    /// The wait with this id for this semaphore.
    fn find(&self, keys: &Keys, id: &str) -> Option<&Wait<W>> {
        let mut same = self.waits.get(id).into_iter().flatten();
        same.find(|wait| wait.key == keys.meta)
    }

    /// Records that the wait in progress was given up, so that a later grant to it is released. If none is in progress,
    /// the server knows no inbox, and no message about a grant can arrive.
    pub fn give_up(&mut self, now: Instant, keys: &Keys, id: &str) {
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

    /// Removes the given-up waits of `id` for which `is_it` returns `true`. Returns the last of them.
    fn forget(&mut self, id: &str, mut is_it: impl FnMut(&GivenUp) -> bool) -> Option<GivenUp> {
        let same = self.given_up.get_mut(id)?;
        let forgotten = same.extract_if(.., |wait| is_it(wait)).last();
        if same.is_empty() {
            self.given_up.remove(id);
        }
        forgotten
    }

    /// If the message is a grant to a wait that was given up, returns the release of that grant.
    pub fn release_of<C>(&mut self, received: &Received) -> Option<PendingRelease<C>> {
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
