//! The messages that the scripts publish, the mailbox of each wait, and the inbox of a client, which finds
//! the wait that a message belongs to. The wait may be in progress, or may have been given up; then its grant
//! is released.
//!
//! A message is a hint that also contains the grant. It may be lost, delayed or repeated. Therefore each
//! waiter also asks again without a message. A message can also be forged, since any client that knows the
//! channel can publish on it. Therefore each wait in line has a secret that only this client and the
//! semaphore's keys contain. Messages that are not signed with the secret are ignored.

use super::id::secret_of;
use super::keys::Keys;
use super::lease::Moment;
use super::release::{GivenUpNumber, PendingRelease, ReleaseTarget};
use super::reply::between;
use sha1_smol::Sha1;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The time for which a grant may still arrive for a wait that was given up, unless its release is confirmed.
pub const MEMORY: Duration = Duration::from_secs(120);

/// How many waits that were given up are remembered at most. Then the oldest one is forgotten. If a grant to
/// it arrives all the same, nobody releases it, and it ends with its lease. The first lease of a permanent
/// permit ends too.
pub const MOST_GIVEN_UP: usize = 10_000;

/// All waits of a client, and those that were given up. `W`: the driver's data for a wait.
#[derive(Clone, Debug)]
pub struct Inbox<W> {
    waits: BTreeMap<String, Vec<WaitEntry<W>>>,
    /// By their numbers, in the order in which they were given up.
    pub given_up: BTreeMap<GivenUpNumber, GivenUp>,
    /// The same by their ids.
    by_id: BTreeSet<(Arc<str>, GivenUpNumber)>,
    last_given_up: GivenUpNumber,
}

#[derive(Clone, Debug)]
struct WaitEntry<W> {
    /// The first key.
    key: Arc<str>,
    secret: Option<String>,
    wait: Arc<W>,
}

/// A wait that was given up. Its grant may still arrive until `until`.
#[derive(Clone, Debug)]
pub struct GivenUp {
    keys: Keys,
    pub id: Arc<str>,
    secret: String,
    pub until: Instant,
    /// The highest fence of a grant to it that was released. A copy of that message causes no call.
    fence: u64,
}

impl<W> Default for Inbox<W> {
    fn default() -> Inbox<W> {
        Inbox { waits: BTreeMap::new(), given_up: BTreeMap::new(), by_id: BTreeSet::new(), last_given_up: 0 }
    }
}

impl<W> Inbox<W> {
    /// Adds a wait in line. `make` creates it with its secret, which is made of `random`. `None`: this id
    /// already waits for this semaphore.
    pub fn add(
        &mut self,
        keys: &Keys,
        id: &str,
        random: Uuid,
        make: impl FnOnce(String) -> Arc<W>,
    ) -> Option<Arc<W>> {
        if self.find(keys, id).is_some() {
            return None;
        }
        self.forget_of(keys, id);
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
        same.push(WaitEntry { key, secret, wait: wait.clone() });
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
    fn find(&self, keys: &Keys, id: &str) -> Option<&WaitEntry<W>> {
        let mut same = self.waits.get(id).into_iter().flatten();
        same.find(|wait| wait.key == keys.meta)
    }

    /// Records that the wait in progress was given up, so that a later grant to it is released. Returns its
    /// number. `None`: no such wait is in progress. Then the server knows no inbox, and no message about a
    /// grant can arrive.
    pub fn give_up(&mut self, now: Instant, keys: &Keys, id: &str) -> Option<GivenUpNumber> {
        let secret = self.find(keys, id)?.secret.clone()?;
        self.forget_of(keys, id);
        while let Some((number, first)) = self.given_up.first_key_value()
            && (first.until <= now || self.given_up.len() >= MOST_GIVEN_UP)
        {
            self.forget(*number);
        }
        self.last_given_up += 1;
        let (number, id) = (self.last_given_up, Arc::<str>::from(id));
        self.by_id.insert((id.clone(), number));
        self.given_up
            .insert(number, GivenUp { keys: keys.clone(), id, secret, until: now + MEMORY, fence: 0 });
        Some(number)
    }

    /// Forgets a wait that was given up: no grant to it needs a release any more.
    pub fn forget(&mut self, number: GivenUpNumber) -> Option<GivenUp> {
        let forgotten = self.given_up.remove(&number)?;
        self.by_id.remove(&(forgotten.id.clone(), number));
        Some(forgotten)
    }

    /// Forgets the waits for these keys that were given up.
    fn forget_of(&mut self, keys: &Keys, id: &str) {
        let same = self.given_up_of(id, |given_up| given_up.keys == *keys);
        same.into_iter().for_each(|number| _ = self.forget(number));
    }

    /// The waits of `id` that were given up and for which `is_it` returns `true`.
    fn given_up_of(&self, id: &str, is_it: impl Fn(&GivenUp) -> bool) -> Vec<GivenUpNumber> {
        let same = self.by_id.range((id.into(), 0)..).take_while(|(other, _)| **other == *id);
        let same = same.filter(|(_, number)| self.given_up.get(number).is_some_and(&is_it));
        same.map(|(_, number)| *number).collect()
    }

    /// If the message is a grant to a wait that was given up, returns the release of that grant, until its
    /// lease ends. A second grant may follow: several calls of the wait may still run.
    pub fn release_of<C>(&mut self, received: &Received, now: Instant) -> Option<PendingRelease<C>> {
        let message = &received.message;
        let is_it = |wait: &GivenUp| message.fence > wait.fence && received.is_signed_with(&wait.secret);
        let number = self.given_up_of(&message.id, is_it).pop()?;
        let wait = self.given_up.get_mut(&number)?;
        wait.fence = message.fence;
        let target = ReleaseTarget::Fence(message.fence);
        // It may be an id that is used again.
        let until = message.at.and_then(|end| now.checked_add(between(message.now, end)));
        Some(PendingRelease::of_grant(&wait.keys, &message.id, true, target, until))
    }
}

/// The mailbox of one wait.
#[derive(Clone, Debug, Default)]
pub struct Mailbox {
    /// The secret that signs the messages to this wait. `None`: for a latch, whose messages are only hints to
    /// ask again.
    pub secret: Option<String>,
    /// The channel named in the last call that asked for messages. Messages on other channels are not
    /// handled.
    channel: String,
    pub messages: VecDeque<(Message, Moment)>,
    /// A hint to ask again: messages may be missing.
    pub called: bool,
    pub cancelled: bool,
    /// When the wait is cancelled without a call of `Cancel::cancel`.
    pub cancelled_at: Option<Instant>,
}

/// An event in a mailbox.
pub enum Mail {
    Message {
        message: Message,
        received: Moment,
    },
    /// A hint to ask again: messages may have been missed, or a latch may have opened.
    Called,
    Cancelled,
    /// No event arrived in time.
    Timer,
}

impl Mailbox {
    pub fn new(secret: Option<String>) -> Mailbox {
        Mailbox { secret, ..Mailbox::default() }
    }

    /// The inbox as an argument for the scripts: the channel, and the secret that signs the messages. From
    /// now on only messages on this channel are handled.
    pub fn inbox(&mut self, channel: &str) -> String {
        channel.clone_into(&mut self.channel);
        match &self.secret {
            Some(secret) if !channel.is_empty() => format!("{channel}#{secret}"),
            _ => channel.to_owned(),
        }
    }

    /// Takes a message if it is signed for this wait. Returns whether it is. Copies of a message that is
    /// already in the mailbox are dropped.
    pub fn put(&mut self, channel: &str, received: &Received, now: Moment) -> bool {
        let Some(secret) = &self.secret else {
            self.called = true;
            return false;
        };
        if !received.is_signed_with(secret) {
            return false;
        }
        if self.channel != channel {
            // From a server that had the semaphore before. It may not know yet that another server has it
            // now.
            self.called = true;
        } else if !self.messages.iter().any(|(m, _)| *m == received.message) {
            self.messages.push_back((received.message.clone(), now));
        }
        true
    }

    pub fn is_cancelled(&self, now: Instant) -> bool {
        self.cancelled || self.cancelled_at.is_some_and(|at| at <= now)
    }

    /// The next event for a waiter that sleeps until `until`. An error is the time at which to check again.
    pub fn take(&mut self, until: Instant, now: Instant) -> Result<Mail, Instant> {
        if let Some((message, received)) = self.messages.pop_front() {
            return Ok(Mail::Message { message, received });
        }
        if self.is_cancelled(now) {
            return Ok(Mail::Cancelled);
        }
        // When the time is over the waiter asks anyway. Therefore the hint needs no event.
        let called = std::mem::take(&mut self.called);
        if until <= now {
            return Ok(Mail::Timer);
        }
        if called {
            return Ok(Mail::Called);
        }
        Err(self.cancelled_at.map_or(until, |at| at.min(until)))
    }
}

/// More bytes than any message of the scripts has, even with the longest id or key.
const LONGEST: usize = 512;

/// A grant, or with fence 0 a hint to ask again at `at` (0: now). A hint without `at`: the place in line was
/// taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub permits: u32,
    pub fence: u64,
    /// The end of the lease (`None`: never), or when to ask again (`None`: the place in line was taken away).
    pub at: Option<u64>,
    pub now: u64,
}

impl Message {
    fn parse(text: &str) -> Option<Message> {
        let mut words = text.split(' ');
        let message = Message {
            id: words.next()?.to_owned(),
            permits: number(words.next()?)?,
            fence: number(words.next()?)?,
            at: match words.next()? {
                "-1" => None,
                at => Some(number(at)?),
            },
            now: number(words.next()?)?,
        };
        let granted_none = message.fence > 0 && message.permits == 0;
        (words.next().is_none() && !granted_none).then_some(message)
    }
}

/// A number in decimal digits, without a sign or other characters.
fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| word.parse().ok())?
}

/// A message as it was received. Any client may have sent it.
pub struct Received<'a> {
    pub message: Message,
    text: &'a str,
    signature: Option<&'a str>,
}

impl<'a> Received<'a> {
    /// `None` if no script sends such a message.
    pub fn read(payload: &'a [u8]) -> Option<Received<'a>> {
        if payload.len() > LONGEST {
            return None;
        }
        let whole = std::str::from_utf8(payload).ok()?;
        let (text, signature) = match whole.rsplit_once(' ')? {
            (text, signature) if whole.split(' ').count() == 6 => (text, Some(signature)),
            _ => (whole, None),
        };
        Some(Received { message: Message::parse(text)?, text, signature })
    }

    /// Whether the sender knew this secret of a wait, as the scripts do. SHA-1 allows a forger to extend a
    /// signed text without the secret. Such a text has bytes after its last number, and `read` rejects it.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let Some(signature) = self.signature else {
            return false;
        };
        let mut sha1 = Sha1::new();
        sha1.update(secret.as_bytes());
        sha1.update(self.text.as_bytes());
        let right = sha1.digest().to_string();
        right == signature
            || fault!("only the beginning of a signature is checked") && right.get(..8) == signature.get(..8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_or_ignored() {
        let grant = Message::parse("web/1 3 17 5000 4000");
        let expected = Message { id: "web/1".to_owned(), permits: 3, fence: 17, at: Some(5000), now: 4000 };
        assert_eq!(grant, Some(expected));
        assert_eq!(Message::parse("a 1 17 -1 4000").map(|m| m.at), Some(None));
        for text in [
            "",
            "a",
            "a 1 2 3",
            "a 1 2 3 4 5",
            "a -1 2 3 4",
            "a 1 2 -2 4",
            "a x 2 3 4",
            "a 0 1 3 4",
            "a 0 2 3 4",
            "a +1 2 3 4",
            "a 1 2 3 ",
            "a 1 2 3 4\0",
            "a 1 18446744073709551616 3 4",
        ] {
            assert_eq!(Message::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_signature_is_the_sha1_of_secret_and_text() {
        // printf 'secreta 1 17 5000 4000' | sha1sum
        let signed = b"a 1 17 5000 4000 41a9f2e61851758a6ae3a4b0dae93b27188e47e7";
        let received = Received::read(signed).unwrap();
        assert!(received.is_signed_with("secret"));
        assert!(!received.is_signed_with("secre"));
        assert!(!received.is_signed_with(""));
        for other in [
            "a 1 17 5000 4000",
            "a 1 17 5000 4001 41a9f2e61851758a6ae3a4b0dae93b27188e47e7",
            "a 1 17 5000 4000 41a9f2e61851758a6ae3a4b0dae93b27188e47e",
            "a 1 17 5000 4000 ",
        ] {
            let received = Received::read(other.as_bytes()).unwrap();
            assert!(!received.is_signed_with("secret"), "{other:?}");
        }
        let numbers = " 1 17 5000 4000";
        let long = "a".repeat(LONGEST - numbers.len()) + numbers;
        assert!(Received::read(long.as_bytes()).is_some());
        assert!(Received::read(format!("a{long}").as_bytes()).is_none());
        assert!(
            Received::read(b"a 1 17 5000 4000\x80\x00 41a9f2e61851758a6ae3a4b0dae93b27188e47e7").is_none()
        );
    }
}
