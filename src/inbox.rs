//! The inbox: one subscriber connection a gate, however many threads wait, on which waiters hear of their grants.
//!
//! A message is a hint that happens to carry the grant. It may be lost, come late, or twice; every waiter also asks
//! again by itself. It may also be forged, since whoever knows the channel may publish there. So every wait in line has a
//! secret, which only this client and the semaphore's keys know, and what is not signed with it does not count.

use crate::background::{Background, Debt};
use crate::clock::Clock;
use crate::connections::Connections;
use crate::error::CallError;
use crate::failure::{Failure, FailureKind};
use crate::message::Received;
use crate::name::Keys;
use crate::permission;
use crate::sync::{lock, wait_for};
use crate::waits::{Wait, Waits};
use redis::{PubSub, RedisError};
use std::mem::ManuallyDrop;
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

enum Subscription {
    /// Nobody has waited yet.
    None,
    /// On its way, first or again; `tried`: it has failed before.
    Down {
        tried: bool,
    },
    Up,
    /// Messages do not arrive here: a proxy is in between.
    Useless,
    /// The user may not listen, or may not tell who listens. Whoever waits is told so; the next wait tries again.
    Refused(Failure),
    /// The gate is gone.
    Closed,
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

    fn clock(&self) -> &Clock {
        &self.shared.connections.clock
    }

    /// Whether somebody has waited before, so that there is a subscription or will be.
    pub(crate) fn is_opened(&self) -> bool {
        !matches!(*lock(&self.shared.subscription), Subscription::None)
    }

    /// The channel, once the subscription stands; opens it if need be. `None` where there is none: then a waiter asks
    /// without an inbox. A failure where the user lacks a permission, which would make every wait slow without a word.
    pub(crate) fn channel(&self, until: Option<Instant>) -> Result<Option<&str>, Failure> {
        let now = self.clock().now();
        let latest = now + self.shared.connections.timeouts().connect;
        let latest = until.map_or(latest, |until| until.min(latest));
        let mut subscription = lock(&self.shared.subscription);
        if let Subscription::None | Subscription::Refused(_) = *subscription {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("luagate-inbox".to_owned());
            if thread.spawn(move || listen(&shared)).is_err() {
                return Ok(None);
            }
            *subscription = Subscription::Down { tried: false };
        }
        loop {
            match &*subscription {
                Subscription::Up => return Ok(Some(&self.shared.channel)),
                Subscription::Down { tried: false } => {}
                Subscription::Refused(failure) => return Err(failure.clone()),
                _ => return Ok(None),
            }
            let left = latest.saturating_duration_since(self.clock().now());
            if left.is_zero() {
                return Ok(None);
            }
            subscription = wait_for(&self.shared.changed, subscription, left);
        }
    }

    /// Lets a wait hear its messages. `None` when this very id waits for this semaphore already.
    pub(crate) fn register(&self, keys: &Keys, id: &str) -> Option<Arc<Wait>> {
        lock(&self.shared.waits).add(self.clock(), keys, id)
    }

    /// Lets a wait hear the messages for `key`; any number of threads may wait for the same.
    pub(crate) fn register_shared(&self, key: &str) -> Arc<Wait> {
        lock(&self.shared.waits).add_shared(self.clock(), key)
    }

    /// Ends a wait.
    pub(crate) fn unregister(&self, wait: &Arc<Wait>) {
        lock(&self.shared.waits).remove(wait);
    }

    /// A wait was given up and the server did not confirm it: a grant that still comes for it is released.
    pub(crate) fn give_up(&self, keys: &Keys, id: &str) {
        lock(&self.shared.waits).give_up(self.clock().now(), keys, id);
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
        if let Subscription::Closed = *subscription {
            return false;
        }
        *subscription = to;
        self.changed.notify_all();
        true
    }

    fn is_closed(&self) -> bool {
        matches!(*lock(&self.subscription), Subscription::Closed)
    }

    fn deliver(&self, heard: &Received) {
        let given_up = lock(&self.waits).deliver(heard, self.connections.clock.moment());
        if let Some(wait) = given_up {
            self.background.release(Debt {
                permits: vec![(wait.keys, heard.message.id.clone())],
                wire: None,
                until: Some(wait.until),
            });
        }
    }

    fn call_all(&self) {
        for wait in lock(&self.waits).all() {
            wait.call();
        }
    }

    /// Whether the server counts the subscription: behind some proxies it does not, and scripts would see nobody.
    ///
    /// Scripts pass over in silence what the user may not ask or send there, so both are tried here, by the same commands.
    fn is_heard(&self) -> Result<bool, NotHeard> {
        let mut numsub = redis::cmd("PUBSUB");
        numsub.arg("NUMSUB").arg(&self.channel);
        let count = self.try_out(&numsub)?.and_then(|reply| {
            let (_, count): (String, i64) = redis::from_redis_value(reply).ok()?;
            Some(count)
        });
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.channel).arg(""); // no message of luagate: nobody heeds it
        self.try_out(&publish)?;
        Ok(count.is_some_and(|count| count > 0))
    }

    /// The reply; `None` where the server, or what stands in front of it, does not know the command.
    fn try_out(&self, command: &redis::Cmd) -> Result<Option<redis::Value>, NotHeard> {
        let answered = self.connections.call(None, &mut |con| {
            let reply = command.query(con);
            reply.map_err(|error: RedisError| CallError::Failed(error.into()))
        });
        match answered {
            Ok(answered) => Ok(Some(answered.reply)),
            Err(unanswered) => match unanswered.error {
                CallError::Failed(failure) if failure.kind() == FailureKind::Permission => {
                    Err(NotHeard::Refused(self.named(&failure)))
                }
                CallError::Failed(failure) if !failure.is_passing() => Ok(None),
                _ => Err(NotHeard::Broken),
            },
        }
    }

    /// The refusal, with the name of the channel where it is that.
    fn named(&self, failure: &Failure) -> Failure {
        let text = permission::name_channel(failure.text(), &self.channel);
        Failure::new(FailureKind::Permission, text)
    }
}

/// Why it is not known whether the subscription is counted.
enum NotHeard {
    Refused(Failure),
    Broken,
}

/// The subscriber thread: subscribes, tests the subscription, delivers; again whenever the connection breaks.
fn listen(shared: &Shared) {
    let mut again = false;
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        match subscribe(shared, again) {
            Ended::Closed | Ended::Useless => return,
            Ended::Refused(failure) => {
                shared.set(Subscription::Refused(failure));
                shared.call_all(); // whoever asks hears it
                return;
            }
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
    Refused(Failure),
    Broken { was_up: bool },
}

fn subscribe(shared: &Shared, again: bool) -> Ended {
    let broken = Ended::Broken { was_up: false };
    let Ok(mut con) = shared.connections.connect() else {
        return broken;
    };
    // Sent as any other command, since a `PubSub` tells of no refusal.
    let mut command = redis::cmd("SUBSCRIBE");
    if let Err(error) = command.arg(&shared.channel).exec(&mut con) {
        let failure = Failure::from(error);
        if failure.kind() == FailureKind::Permission {
            return Ended::Refused(shared.named(&failure));
        }
        if failure.is_passing() || failure.is_broken() {
            return broken;
        }
        shared.set(Subscription::Useless);
        return Ended::Useless;
    }
    // Its drop would unsubscribe, which is one more permission, and wait for the reply; the connection is closed instead.
    let mut subscriber = ManuallyDrop::new(con.as_pubsub());
    // That the server took the command does not say that it took the subscription.
    match shared.is_heard() {
        Ok(true) => {}
        // Nor is a subscription that broke in the meantime counted.
        Ok(false) if !again && stands(&mut subscriber) => {
            shared.set(Subscription::Useless);
            return Ended::Useless;
        }
        Err(NotHeard::Refused(failure)) => return Ended::Refused(failure),
        _ => return broken,
    }
    if !shared.set(Subscription::Up) {
        return Ended::Closed;
    }
    if again {
        shared.call_all();
    }
    let mut last = Instant::now();
    let mut looked = last;
    let read_timeout = shared.connections.timeouts().read;
    loop {
        if subscriber.set_read_timeout(Some(TICK)).is_err() {
            return Ended::Broken { was_up: true };
        }
        let message = subscriber.get_message();
        let is_silent = matches!(&message, Err(error) if is_pause(error));
        // A gate may also go while somebody sends it message after message.
        if is_silent || looked.elapsed() >= TICK {
            looked = Instant::now();
            if shared.is_closed() {
                return Ended::Closed;
            }
        }
        match message {
            Ok(message) => {
                last = Instant::now();
                if let Some(heard) = Received::read(message.get_payload_bytes()) {
                    shared.deliver(&heard);
                }
            }
            Err(_) if is_silent => {
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

/// Whether nothing came in time; or this process was stopped and goes on, which interrupts a read that has a timeout, as
/// signal(7) says. In both cases the connection stands.
fn is_pause(error: &RedisError) -> bool {
    let interrupted = || {
        let cause = std::error::Error::source(error)?
            .downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
        let kind = cause.downcast_ref::<std::io::Error>()?.kind();
        Some(kind == std::io::ErrorKind::Interrupted)
    };
    error.is_timeout() || interrupted() == Some(true)
}

/// Whether something answers on the connection, if only with an error.
fn stands(subscriber: &mut PubSub) -> bool {
    !matches!(subscriber.ping::<redis::Value>(), Err(error) if error.is_io_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_pause_is_no_broken_connection() {
        let is_pause = |kind| is_pause(&RedisError::from(Error::from(kind)));
        assert!(is_pause(ErrorKind::Interrupted));
        assert!(is_pause(ErrorKind::WouldBlock));
        assert!(!is_pause(ErrorKind::ConnectionReset));
        assert!(!is_pause(ErrorKind::UnexpectedEof));
    }
}
