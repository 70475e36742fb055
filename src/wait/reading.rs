//! Decides which thread reads a subscription. Preferably it is a waiting thread, so that a grant wakes one thread
//! instead of two. Otherwise it is the subscriber's own thread.

use crate::clock::machine_now;
use crate::sync::{lock, wait_for};
use crate::transport::subscription::Subscription;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// A subscription that threads read one after the other.
#[derive(Default)]
pub(super) struct Reading {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` while a thread reads.
    free: Option<Subscription>,
    /// The number of subscriptions so far. A thread may still read one that has ended.
    number: u64,
    /// The subscription broke while a waiting thread read it.
    broken: bool,
    /// The subscriber's thread needs it.
    wanted: bool,
    /// A wait that does not read the subscription itself has begun.
    called: bool,
}

/// The subscription, owned by the thread that reads it.
pub(super) struct Taken {
    pub(super) subscription: Subscription,
    number: u64,
}

/// The next action of the subscriber's thread.
pub(super) enum Next {
    Reads(Box<Taken>),
    /// A waiting thread reads instead.
    Rests,
    Broken,
}

impl State {
    fn take(&mut self) -> Option<Taken> {
        Some(Taken { subscription: self.free.take()?, number: self.number })
    }
}

impl Reading {
    /// A new subscription works.
    pub(super) fn begin(&self, subscription: Subscription) {
        self.replace(Some(subscription));
    }

    /// The subscription has ended. If a thread still reads it, it is closed when that thread gives it back.
    pub(super) fn end(&self) {
        self.replace(None);
    }

    fn replace(&self, subscription: Option<Subscription>) {
        let mut state = lock(&self.state);
        let before = std::mem::take(&mut *state);
        state.free = subscription;
        state.number = before.number + 1;
    }

    /// Takes the subscription for a thread that waits for a message.
    pub(super) fn take(&self) -> Option<Taken> {
        let mut state = lock(&self.state);
        match state.wanted {
            true => None,
            false => state.take(),
        }
    }

    /// Whether there is a subscription that no thread reads.
    pub(super) fn is_free(&self) -> bool {
        lock(&self.state).free.is_some()
    }

    /// A thread has stopped reading. `works`: the subscription is not broken.
    pub(super) fn give_back(&self, taken: Taken, works: bool) {
        let mut state = lock(&self.state);
        if taken.number != state.number {
            return; // a newer subscription has replaced it, or none
        }
        state.broken |= !works;
        state.free = works.then_some(taken.subscription);
        let wakes = state.broken || state.wanted;
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Makes the subscriber's thread read as soon as it can.
    pub(super) fn call(&self) {
        lock(&self.state).called = true;
        self.changed.notify_one();
    }

    /// The next action of the subscriber's thread. It reads after `pause`, or earlier if that is needed and no other
    /// thread reads. `insists`: it needs the subscription even if a waiting thread reads.
    pub(super) fn next(&self, pause: Duration, is_needed: bool, insists: bool) -> Next {
        let end = machine_now() + pause;
        let mut state = lock(&self.state);
        state.wanted = insists;
        state.called |= is_needed;
        loop {
            let left = end.saturating_duration_since(machine_now());
            let is_due = state.called || insists || left.is_zero();
            if state.broken {
                return Next::Broken;
            }
            if is_due && let Some(taken) = state.take() {
                (state.wanted, state.called) = (false, false);
                return Next::Reads(Box::new(taken));
            }
            if left.is_zero() {
                return Next::Rests;
            }
            state = wait_for(&self.changed, state, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::{Client, IntoConnectionInfo};
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};

    /// A subscription, and the server's end of its connection.
    fn subscription() -> (Subscription, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let info = url.into_connection_info().unwrap();
        let silent = info.redis_settings().clone().set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(silent)).unwrap();
        let con = client.get_connection().unwrap();
        let (server, _) = listener.accept().unwrap();
        (Subscription::on(con, Duration::from_secs(1)), server)
    }

    fn is_open(mut server: &TcpStream) -> bool {
        server.set_nonblocking(true).unwrap();
        let read = server.read(&mut [0]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Blocks until the connection is closed, for 10 s at most.
    fn is_closed(mut server: &TcpStream) -> bool {
        server.set_nonblocking(false).unwrap();
        let soon = Some(Duration::from_secs(10));
        server.set_read_timeout(soon).unwrap();
        matches!(server.read(&mut [0]), Ok(0))
    }

    #[test]
    fn what_a_thread_still_reads_does_not_take_the_place_of_the_next_subscription() {
        let reading = Reading::default();
        let (former, at_former) = subscription();
        let (next, at_next) = subscription();
        reading.begin(former);
        let taken = reading.take().unwrap();
        reading.end(); // another server is the master now
        reading.begin(next);
        reading.give_back(taken, true);
        assert!(is_open(&at_next), "the next one is gone");
        assert!(is_closed(&at_former), "the former one stays open");
        assert!(reading.is_free());
    }

    #[test]
    fn a_subscription_that_is_over_is_closed_once_nobody_reads_it() {
        let reading = Reading::default();
        let (subscription, server) = subscription();
        reading.begin(subscription);
        let taken = reading.take().unwrap();
        reading.end();
        assert!(is_open(&server));
        reading.give_back(taken, true);
        assert!(is_closed(&server) && reading.take().is_none());
    }
}
