//! A subscription: one connection to one server, on which all waiting threads receive their messages.

use super::mailbox::{Look, Mailbox};
use super::reading::{Next, Reading, Taken};
use super::registry::Registry;
use super::trial::{self, NoMessages};
use crate::clock::{machine_now, since};
use crate::error::failure::Failure;
use crate::protocol::mailbox::Mail;
use crate::protocol::message::Received;
use crate::sync::{lock, wait_for};
use crate::transport::pool::{Pool, Sending};
use crate::transport::subscription::{Broken, Subscription, TICK};
use redis::{Cmd, Msg, Value};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// If a subscription breaks after at least this time, it is re-established after the shortest pause.
const STEADY: Duration = Duration::from_secs(1);

/// How long the thread reads at a time if all waits read for themselves.
const DRAIN: Duration = Duration::from_millis(5);

/// The interval of connection tests, since a broken connection may not report it.
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
    /// Being established, for the first time or again. `tried`: it has failed before.
    Down {
        tried: bool,
    },
    Up,
    /// Messages do not arrive on this connection, because of a proxy.
    Useless,
    /// The user may not subscribe, or may not run `PUBSUB` or `PUBLISH` on the channel. Current waits end with this
    /// error; the next wait tries again with another subscriber.
    Refused(Failure),
    /// The gate was dropped, or this server is no longer needed.
    Closed,
}

impl Subscriber {
    /// Begins to subscribe. `None` if no thread can be started.
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

    /// Blocks until it is known whether the subscription works, and returns it. If it does not work, a waiter asks
    /// without an inbox.
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

    /// The inbox of a wait, as an argument for the scripts.
    pub(super) fn inbox(&self, mailbox: &Mailbox) -> String {
        if !mailbox.may_read() {
            self.reading.call();
        }
        mailbox.inbox(&self.channel)
    }

    /// Whether this subscriber will receive no more messages.
    pub(crate) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        matches!(*state, State::Closed | State::Refused(_))
    }

    /// Ends the subscription. Its thread ends soon.
    pub(crate) fn close(&self) {
        *lock(&self.state) = State::Closed;
    }

    /// Sets the state of the subscription. Returns `false` if it is closed.
    fn set(&self, to: State) -> bool {
        let mut state = lock(&self.state);
        if let State::Closed = *state {
            return false;
        }
        *state = to;
        self.changed.notify_all();
        true
    }

    /// Whether the server counts the subscription. Behind some proxies it does not, and the scripts would see no
    /// subscriber.
    ///
    /// Also tries the two commands of the scripts, since the scripts ignore it if the user lacks a permission for them.
    fn receives_messages(&self) -> Result<bool, NoMessages> {
        let count = self.try_out(&trial::numsub(&self.channel))?;
        self.try_out(&trial::publish(&self.channel))?;
        Ok(trial::is_counted(count))
    }

    /// The reply. `None`: the server, or a proxy ahead of it, does not know the command.
    fn try_out(&self, command: &Cmd) -> Result<Option<Value>, NoMessages> {
        trial::read(self.pool.command(command, Sending::default()), &self.channel)
    }
}

/// The loop of the thread: subscribes, tests the subscription and delivers messages. Repeats this whenever the
/// connection breaks.
fn listen(subscriber: &Subscriber) {
    let mut again = false;
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = machine_now();
        match subscribe(subscriber, again) {
            Ended::Closed | Ended::Useless => return,
            Ended::Refused(failure) => {
                subscriber.set(State::Refused(failure));
                subscriber.registry.call_all(); // so that each waiter asks and gets the error
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
    // Sent as a plain command, since `PubSub` does not report a refusal.
    let mut command = redis::cmd("SUBSCRIBE");
    if let Err(error) = command.arg(&subscriber.channel).exec(&mut con) {
        match trial::of_error(error.into(), &subscriber.channel) {
            Some(NoMessages::Refused(failure)) => return Ended::Refused(failure),
            Some(NoMessages::Broken) => return broken,
            None => {
                subscriber.set(State::Useless);
                return Ended::Useless;
            }
        }
    }
    let mut subscription = Subscription::on(con, subscriber.pool.options.timeouts.read);
    // The server may have accepted the command without a subscription.
    match subscriber.receives_messages() {
        Ok(true) => {}
        // A subscription that has just broken is not counted either.
        Ok(false) if !again && subscription.works() => {
            subscriber.set(State::Useless);
            return Ended::Useless;
        }
        Err(NoMessages::Refused(failure)) => return Ended::Refused(failure),
        _ => return broken,
    }
    subscriber.reading.begin(subscription);
    let ended = subscriber.look_after(moves, again);
    subscriber.reading.end();
    ended
}

impl Subscriber {
    /// While the subscription works, tests its connection, and reads it for the waits that do not read themselves.
    fn look_after(&self, moves: u64, again: bool) -> Ended {
        if !self.set(State::Up) {
            return Ended::Closed;
        }
        if again {
            let what = "a subscription was re-established";
            self.pool.count_reconnect(what);
            self.registry.call_all(); // messages were missed while it was down
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
            // A gate may be dropped even while messages arrive without a pause.
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

    /// Delivers the messages that arrive until `until`, in order.
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

    /// If no thread reads, wakes another waiting thread to read. If there is none, the subscriber's own thread reads
    /// for waits that do not read themselves.
    fn pass_on(&self) {
        let is_passed_on = !self.reading.is_free() || self.registry.wake_a_reader(&self.channel);
        if !is_passed_on && self.registry.needs_reader() {
            self.reading.call();
        }
    }

    /// The next event of a mailbox. Blocks until `until` at most. If no other thread reads the subscription, this
    /// thread does.
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

    /// Reads and delivers one message. Blocks until `until` at most.
    fn read_once(&self, mut taken: Taken, until: Instant) {
        let message = taken.subscription.next(until);
        if let Ok(Some(message)) = &message {
            self.deliver(message);
        }
        // Only after the delivery: while this thread reads, no other thread delivers a message that this one would
        // miss.
        self.reading.give_back(taken, message.is_ok());
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;
    use crate::error::failure::FailureKind;
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
