//! The inbox: one subscriber connection a gate, however many threads wait, on which waiters hear of their grants.
//!
//! A message is a hint that happens to carry the grant. It may be lost, come late, or twice; every waiter also asks
//! again by itself.

use crate::background::{Background, Debt};
use crate::connections::Connections;
use crate::error::CallError;
use crate::lease::Moment;
use crate::name::Keys;
use crate::sync::{lock, wait_for};
use redis::PubSub;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How often the subscriber looks whether the gate is gone.
const TICK: Duration = Duration::from_millis(500);

/// A subscription that was silent for so long is tested: a connection that died quietly is silent too.
const SILENCE: Duration = Duration::from_secs(5);

/// A subscription that stood for so long is opened again without much of a pause when it breaks.
const STEADY: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a grant may still come for a wait that was given up without an answer.
const MEMORY: Duration = Duration::from_secs(120);

/// What a message says: a grant, or with fence 0 a hint to ask again at `at` (0: now).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) permits: u32,
    pub(crate) fence: u64,
    /// The end of the lease (`None`: never), or when to ask again.
    pub(crate) at: Option<u64>,
    pub(crate) now: u64,
}

impl Message {
    fn parse(payload: &str) -> Option<Message> {
        let mut words = payload.split(' ');
        let message = Message {
            id: words.next()?.to_owned(),
            permits: words.next()?.parse().ok()?,
            fence: words.next()?.parse().ok()?,
            at: match words.next()? {
                "-1" => None,
                at => Some(at.parse().ok()?),
            },
            now: words.next()?.parse().ok()?,
        };
        let granted_none = message.fence > 0 && message.permits == 0;
        (words.next().is_none() && !granted_none).then_some(message)
    }
}

/// What a waiter hears.
pub(crate) enum News {
    Message {
        message: Message,
        received: Moment,
    },
    /// The subscription was lost and is back: whatever came between was missed.
    Resubscribed,
    Cancelled,
    /// Nothing until the time was over.
    Silence,
}

/// One wait that is under way.
pub(crate) struct Wait {
    id: String,
    meta: String,
    state: Mutex<Heard>,
    bell: Condvar,
}

#[derive(Default)]
struct Heard {
    news: VecDeque<News>,
    cancelled: bool,
}

impl Wait {
    fn tell(&self, news: News) {
        lock(&self.state).news.push_back(news);
        self.bell.notify_one();
    }

    pub(crate) fn cancel(&self) {
        lock(&self.state).cancelled = true;
        self.bell.notify_one();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }

    /// The next news, waited for until `until`.
    pub(crate) fn hear(&self, until: Instant) -> News {
        let mut state = lock(&self.state);
        loop {
            if let Some(news) = state.news.pop_front() {
                return news;
            }
            if state.cancelled {
                return News::Cancelled;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return News::Silence;
            }
            state = wait_for(&self.bell, state, left);
        }
    }
}

/// The subscriber and those who wait for it.
pub(crate) struct Inbox {
    shared: Arc<Shared>,
}

struct Shared {
    connections: Arc<Connections>,
    background: Arc<Background>,
    channel: String,
    subscription: Mutex<Subscription>,
    changed: Condvar,
    waits: Mutex<Waits>,
}

#[derive(Clone, Copy, PartialEq)]
enum Subscription {
    /// Nobody has waited yet.
    None,
    /// On its way, first or again; `tried`: it has failed before.
    Down {
        tried: bool,
    },
    Up,
    /// Messages do not arrive here: a proxy in between, or no permission.
    Useless,
    /// The gate is gone.
    Closed,
}

#[derive(Default)]
struct Waits {
    by_id: HashMap<String, Vec<Arc<Wait>>>,
    given_up: HashMap<String, (Keys, Instant)>,
}

impl Waits {
    fn add(&mut self, id: &str, meta: &str) -> Arc<Wait> {
        let wait = Arc::new(Wait {
            id: id.to_owned(),
            meta: meta.to_owned(),
            state: Mutex::default(),
            bell: Condvar::new(),
        });
        let same = self.by_id.entry(id.to_owned()).or_default();
        same.push(wait.clone());
        wait
    }
}

impl Inbox {
    pub(crate) fn new(
        connections: Arc<Connections>,
        background: Arc<Background>,
        channel: String,
    ) -> Inbox {
        Inbox {
            shared: Arc::new(Shared {
                connections,
                background,
                channel,
                subscription: Mutex::new(Subscription::None),
                changed: Condvar::new(),
                waits: Mutex::default(),
            }),
        }
    }

    /// Whether somebody has waited before, so that there is a subscription or will be.
    pub(crate) fn is_opened(&self) -> bool {
        *lock(&self.shared.subscription) != Subscription::None
    }

    /// The channel, once the subscription stands; opens it if need be. `None` where there is none: then a waiter asks
    /// without an inbox.
    pub(crate) fn channel(&self, until: Option<Instant>) -> Option<&str> {
        let latest = Instant::now() + self.shared.connections.timeouts().connect;
        let latest = until.map_or(latest, |until| until.min(latest));
        let mut subscription = lock(&self.shared.subscription);
        if *subscription == Subscription::None {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("luagate-inbox".to_owned());
            if thread.spawn(move || listen(&shared)).is_err() {
                return None;
            }
            *subscription = Subscription::Down { tried: false };
        }
        loop {
            match *subscription {
                Subscription::Up => return Some(&self.shared.channel),
                Subscription::Down { tried: false } => {}
                _ => return None,
            }
            let left = latest.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            subscription = wait_for(&self.shared.changed, subscription, left);
        }
    }

    /// Lets a wait hear its messages. `None` when this very id waits for this semaphore already.
    pub(crate) fn register(&self, keys: &Keys, id: &str) -> Option<Arc<Wait>> {
        let mut waits = lock(&self.shared.waits);
        waits.given_up.remove(id);
        let mut same = waits.by_id.get(id).into_iter().flatten();
        if same.any(|wait| wait.meta == keys.meta) {
            return None;
        }
        Some(waits.add(id, &keys.meta))
    }

    /// Lets a wait hear the messages for `key`; any number of threads may wait for the same.
    pub(crate) fn register_shared(&self, key: &str) -> Arc<Wait> {
        lock(&self.shared.waits).add(key, key)
    }

    /// Ends a wait.
    pub(crate) fn unregister(&self, wait: &Arc<Wait>) {
        let mut waits = lock(&self.shared.waits);
        if let Some(same) = waits.by_id.get_mut(&wait.id) {
            same.retain(|other| !Arc::ptr_eq(other, wait));
            if same.is_empty() {
                waits.by_id.remove(&wait.id);
            }
        }
    }

    /// A wait was given up and the server did not confirm it: a grant that still comes for it is released.
    pub(crate) fn give_up(&self, keys: &Keys, id: &str) {
        let now = Instant::now();
        let mut waits = lock(&self.shared.waits);
        waits.given_up.retain(|_, (_, until)| *until > now);
        let entry = (keys.clone(), now + MEMORY);
        waits.given_up.insert(id.to_owned(), entry);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if self.shared.connections.is_own_process() {
            *lock(&self.shared.subscription) = Subscription::Closed;
        }
    }
}

impl Shared {
    /// Says how the subscription is; false when the gate is gone.
    fn set(&self, to: Subscription) -> bool {
        let mut subscription = lock(&self.subscription);
        if *subscription == Subscription::Closed {
            return false;
        }
        *subscription = to;
        self.changed.notify_all();
        true
    }

    fn is_closed(&self) -> bool {
        *lock(&self.subscription) == Subscription::Closed
    }

    fn deliver(&self, message: Message) {
        let received = Moment::now();
        let mut waits = lock(&self.waits);
        if let Some(same) = waits.by_id.get(&message.id) {
            for wait in same {
                wait.tell(News::Message {
                    message: message.clone(),
                    received,
                });
            }
        } else if message.fence > 0
            && let Some((keys, until)) = waits.given_up.remove(&message.id)
        {
            self.background.release(Debt {
                permits: vec![(keys, message.id)],
                wire: None,
                until: Some(until),
            });
        }
    }

    fn tell_all_resubscribed(&self) {
        for wait in lock(&self.waits).by_id.values().flatten() {
            wait.tell(News::Resubscribed);
        }
    }

    /// Whether the server counts the subscription: behind some proxies it does not, and scripts would see nobody.
    fn is_heard(&self) -> Result<bool, ()> {
        let mut numsub = redis::cmd("PUBSUB");
        numsub.arg("NUMSUB").arg(&self.channel);
        let counted = self.connections.call(None, &mut |con| {
            let (_, count): (String, i64) = numsub
                .query(con)
                .map_err(|error| CallError::Failed(error.into()))?;
            Ok(count)
        });
        match counted {
            Ok(answered) => Ok(answered.reply > 0),
            Err(unanswered) => match unanswered.error {
                CallError::Failed(failure) if !failure.is_passing() => Ok(false),
                _ => Err(()),
            },
        }
    }
}

/// The subscriber thread: subscribes, tests the subscription, delivers; again whenever the connection breaks.
fn listen(shared: &Shared) {
    let mut again = false;
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        match subscribe(shared, again) {
            Ended::Closed | Ended::Useless => return,
            Ended::Broken { was_up } => again |= was_up,
        }
        if !shared.set(Subscription::Down { tried: true }) {
            return;
        }
        std::thread::sleep(pause);
        pause = if since.elapsed() > STEADY {
            FIRST_PAUSE
        } else {
            (pause * 2).min(LONGEST_PAUSE)
        };
    }
}

enum Ended {
    Closed,
    Useless,
    Broken { was_up: bool },
}

fn subscribe(shared: &Shared, again: bool) -> Ended {
    let broken = Ended::Broken { was_up: false };
    let Ok(mut con) = shared.connections.connect() else {
        return broken;
    };
    let mut subscriber = con.as_pubsub();
    if subscriber.subscribe(&shared.channel).is_err() {
        return broken;
    }
    // That the server took the command does not say that it took the subscription.
    match shared.is_heard() {
        Ok(true) => {}
        // Nor is a subscription that broke in the meantime counted.
        Ok(false) if !again && stands(&mut subscriber) => {
            shared.set(Subscription::Useless);
            return Ended::Useless;
        }
        _ => return broken,
    }
    if !shared.set(Subscription::Up) {
        return Ended::Closed;
    }
    if again {
        shared.tell_all_resubscribed();
    }
    let mut last = Instant::now();
    let read_timeout = shared.connections.timeouts().read;
    loop {
        if subscriber.set_read_timeout(Some(TICK)).is_err() {
            return Ended::Broken { was_up: true };
        }
        match subscriber.get_message() {
            Ok(received) => {
                last = Instant::now();
                let payload = std::str::from_utf8(received.get_payload_bytes());
                if let Some(message) = payload.ok().and_then(Message::parse) {
                    shared.deliver(message);
                }
            }
            Err(error) if error.is_timeout() => {
                if shared.is_closed() {
                    return Ended::Closed;
                }
                if last.elapsed() >= SILENCE {
                    let answered = subscriber.set_read_timeout(Some(read_timeout)).is_ok()
                        && subscriber.ping::<redis::Value>().is_ok();
                    if !answered {
                        return Ended::Broken { was_up: true };
                    }
                    last = Instant::now();
                }
            }
            Err(_) => return Ended::Broken { was_up: true },
        }
    }
}

/// Whether something answers on the connection, if only with an error.
fn stands(subscriber: &mut PubSub) -> bool {
    !matches!(subscriber.ping::<redis::Value>(), Err(error) if error.is_io_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_or_ignored() {
        let grant = Message::parse("web/1 3 17 5000 4000");
        let expected = Message {
            id: "web/1".to_owned(),
            permits: 3,
            fence: 17,
            at: Some(5000),
            now: 4000,
        };
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
        ] {
            assert_eq!(Message::parse(text), None, "{text:?}");
        }
    }
}
