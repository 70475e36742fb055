//! A subscription: one connection to one server, however many threads wait, on which they hear of their grants.

use super::mailbox::{Look, Mailbox};
use super::reading::{Next, Reading, Taken};
use super::registry::Registry;
use crate::clock::{machine_now, since};
use crate::error::failure::{Failure, FailureKind};
use crate::error::permission;
use crate::protocol::mailbox::Mail;
use crate::protocol::message::Received;
use crate::sync::{lock, wait_for};
use crate::transport::pool::{Pool, Sending};
use crate::transport::subscription::{Broken, Subscription, TICK};
use redis::{Cmd, Msg, Value};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A subscription that stood for so long is opened again without much of a pause when it breaks.
const STEADY: Duration = Duration::from_secs(1);

/// How long the thread reads what nobody waits for.
const DRAIN: Duration = Duration::from_millis(5);

/// How often the connection is tested: one that died quietly is silent too.
const TEST: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Subscriber {
    pool: Arc<Pool>,
    registry: Arc<Registry>,
    channel: String,
    state: Mutex<State>,
    changed: Condvar,
    reading: Reading,
}

enum State {
    /// On its way, first or again; `tried`: it has failed before.
    Down {
        tried: bool,
    },
    Up,
    /// Messages do not arrive here: a proxy is in between.
    Useless,
    /// The user may not listen, or may not tell who listens. Whoever waits is told so; the next wait tries again, with
    /// another subscriber.
    Refused(Failure),
    /// The gate is gone, or nobody needs this server any more.
    Closed,
}

impl Subscriber {
    /// Begins to subscribe. Nothing where no thread can be started.
    pub(crate) fn start(pool: &Arc<Pool>, registry: &Arc<Registry>, channel: String) -> Option<Arc<Subscriber>> {
        let subscriber = Arc::new(Subscriber {
            pool: pool.clone(),
            registry: registry.clone(),
            channel,
            state: Mutex::new(State::Down { tried: false }),
            changed: Condvar::new(),
            reading: Reading::default(),
        });
        let listening = subscriber.clone();
        let thread = std::thread::Builder::new().name("luagate-inbox".to_owned());
        let started = thread.spawn(move || listen(&listening));
        started.is_ok().then_some(subscriber)
    }

    /// Returns whether the subscription works, once that is known. Where it does not a waiter asks without an inbox.
    pub(super) fn works(&self, until: Option<Instant>) -> Result<bool, Failure> {
        let clock = &self.pool.options.clock;
        let latest = clock.now() + self.pool.options.timeouts.connect;
        let latest = until.map_or(latest, |until| until.min(latest));
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Up => return Ok(true),
                State::Down { tried: false } => {}
                State::Refused(failure) => return Err(failure.clone()),
                _ => return Ok(false),
            }
            let left = latest.saturating_duration_since(clock.now());
            if left.is_zero() {
                return Ok(false);
            }
            state = wait_for(&self.changed, state, left);
        }
    }

    /// The inbox of a wait, as the scripts take it.
    pub(super) fn inbox(&self, mailbox: &Mailbox) -> String {
        if !mailbox.may_read() {
            self.reading.call();
        }
        mailbox.inbox(&self.channel)
    }

    /// Nobody hears anything here any more.
    pub(crate) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        matches!(*state, State::Closed | State::Refused(_))
    }

    /// Nobody needs it any more. Its thread ends soon.
    pub(crate) fn close(&self) {
        *lock(&self.state) = State::Closed;
    }

    /// Says how the subscription is; false when it is closed.
    fn set(&self, to: State) -> bool {
        let mut state = lock(&self.state);
        if let State::Closed = *state {
            return false;
        }
        *state = to;
        self.changed.notify_all();
        true
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
    fn try_out(&self, command: &Cmd) -> Result<Option<Value>, NotHeard> {
        let failure = match self.pool.command(command, Sending::default()) {
            Ok(Ok(reply)) => return Ok(Some(reply)),
            Ok(Err(error)) => Failure::from(error),
            Err(_) => return Err(NotHeard::Broken),
        };
        match failure.kind() {
            FailureKind::Permission => Err(NotHeard::Refused(self.named(&failure))),
            _ if failure.is_passing() => Err(NotHeard::Broken),
            _ => Ok(None),
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

/// The thread: subscribes, tests the subscription, delivers; again whenever the connection breaks.
fn listen(subscriber: &Subscriber) {
    let mut again = false;
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = machine_now();
        match subscribe(subscriber, again) {
            Ended::Closed | Ended::Useless => return,
            Ended::Refused(failure) => {
                subscriber.set(State::Refused(failure));
                subscriber.registry.call_all(); // whoever asks hears it
                return;
            }
            Ended::Broken { was_up } => again |= was_up,
        }
        if subscriber.pool.is_retired() {
            subscriber.close();
        }
        if !subscriber.set(State::Down { tried: true }) {
            return;
        }
        std::thread::sleep(pause);
        pause = if since(begun) > STEADY { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
    }
}

enum Ended {
    Closed,
    Useless,
    Refused(Failure),
    Broken { was_up: bool },
}

fn subscribe(subscriber: &Subscriber, again: bool) -> Ended {
    let broken = Ended::Broken { was_up: false };
    let moves = subscriber.pool.moves();
    let Ok(mut con) = subscriber.pool.connect() else {
        return broken;
    };
    // Sent as any other command, since a `PubSub` tells of no refusal.
    let mut command = redis::cmd("SUBSCRIBE");
    if let Err(error) = command.arg(&subscriber.channel).exec(&mut con) {
        let failure = Failure::from(error);
        if failure.kind() == FailureKind::Permission {
            return Ended::Refused(subscriber.named(&failure));
        }
        if failure.is_passing() || failure.is_broken() {
            return broken;
        }
        subscriber.set(State::Useless);
        return Ended::Useless;
    }
    let mut subscription = Subscription::on(con, subscriber.pool.options.timeouts.read);
    // That the server took the command does not say that it took the subscription.
    match subscriber.is_heard() {
        Ok(true) => {}
        // Nor is a subscription that broke in the meantime counted.
        Ok(false) if !again && subscription.works() => {
            subscriber.set(State::Useless);
            return Ended::Useless;
        }
        Err(NotHeard::Refused(failure)) => return Ended::Refused(failure),
        _ => return broken,
    }
    subscriber.reading.begin(subscription);
    let ended = subscriber.look_after(moves, again);
    subscriber.reading.end();
    ended
}

impl Subscriber {
    /// Reads for those who do not read themselves, and tests the connection, for as long as the subscription works.
    fn look_after(&self, moves: u64, again: bool) -> Ended {
        if !self.set(State::Up) {
            return Ended::Closed;
        }
        if again {
            let what = "a subscription was re-established";
            self.pool.count_reconnect(what);
            self.registry.call_all(); // what came while it was down was missed
        }
        let broken = Ended::Broken { was_up: true };
        let mut tested = machine_now();
        loop {
            let is_test_due = since(tested) >= TEST;
            let is_needed = self.registry.needs_reader();
            let mut taken = match self.reading.next(TICK, is_needed, is_test_due) {
                Next::Reads(taken) => Some(*taken),
                Next::Rests => None,
                Next::Broken => return broken,
            };
            // A gate may also go while somebody sends it message after message.
            if self.pool.is_retired() {
                self.close();
            }
            if self.is_over() {
                return Ended::Closed;
            }
            if self.pool.moves() != moves {
                return broken;
            }
            if let Some(Taken { subscription, .. }) = &mut taken {
                let pause = if self.registry.needs_reader() { TICK } else { DRAIN };
                let until = machine_now() + pause;
                if self.read(subscription, until).is_err() {
                    return broken;
                }
                if is_test_due {
                    tested = machine_now();
                    if subscription.test().is_err() {
                        return broken;
                    }
                }
            }
            if let Some(taken) = taken {
                self.reading.give_back(taken, true);
                self.pass_on();
            }
        }
    }

    /// Delivers what comes until then, in the order in which it comes.
    fn read(&self, subscription: &mut Subscription, until: Instant) -> Result<(), Broken> {
        loop {
            let message = subscription.next(until)?;
            if let Some(message) = &message {
                self.deliver(message);
            }
            if message.is_none() || machine_now() >= until {
                return Ok(());
            }
        }
    }

    fn deliver(&self, message: &Msg) {
        if let Some(received) = Received::read(message.get_payload_bytes()) {
            self.registry.deliver(&self.channel, &received);
        }
    }

    /// Where nobody reads, lets another waiting thread read; or this subscriber's own, for those who wait and do not read.
    fn pass_on(&self) {
        let is_passed_on = !self.reading.is_free() || self.registry.wake_a_reader(&self.channel);
        if !is_passed_on && self.registry.needs_reader() {
            self.reading.call();
        }
    }

    /// What comes next in a mailbox, waited for until `until`. Where nobody else reads this thread does.
    pub(super) fn take(&self, mailbox: &Mailbox, until: Instant) -> Mail {
        if !mailbox.may_read() {
            return mailbox.take(until);
        }
        loop {
            match mailbox.look(until, Some(&self.reading)) {
                Look::Mail(mail) => {
                    self.pass_on();
                    return mail;
                }
                Look::Reads(taken, until) => self.read_once(taken, until),
                Look::Slept => {}
            }
        }
    }

    /// Reads one message, waited for until then, and delivers it.
    fn read_once(&self, mut taken: Taken, until: Instant) {
        let message = taken.subscription.next(until);
        if let Ok(Some(message)) = &message {
            self.deliver(message);
        }
        // Only now: while this thread reads, nobody else delivers what it would miss.
        self.reading.give_back(taken, message.is_ok());
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;
    use crate::wait::registry::tests::registry;

    #[test]
    fn a_former_master_that_is_gone_is_not_asked_for_a_subscription_for_ever() {
        let registry = Arc::new(registry());
        let mut pool = None;
        let mut take_pool = |here: &Arc<Pool>| {
            pool = Some(here.clone());
            Err(Failure::new(FailureKind::Other, "only the pool is wanted"))
        };
        let sending = Sending::default();
        let sent = registry.servers.send_as(b"", sending, &mut take_pool);
        assert!(sent.is_err());
        let pool = pool.unwrap();
        let subscriber = Subscriber::start(&pool, &registry, "channel".to_owned()).unwrap();
        assert!(!subscriber.is_over());
        pool.retire(true);
        let end = Instant::now() + Duration::from_secs(10);
        while !subscriber.is_over() {
            assert!(Instant::now() < end, "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
