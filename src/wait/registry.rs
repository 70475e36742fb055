//! The waits of a gate, for all servers.

use super::mailbox::Mailbox;
use crate::lease::releases::Releases;
use crate::protocol::inbox::Inbox;
use crate::protocol::keys::Keys;
use crate::protocol::message::Received;
use crate::sync::lock;
use crate::transport::servers::Servers;
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// All waits of a gate.
pub(super) struct Registry {
    pub(super) servers: Arc<Servers>,
    releases: Arc<Releases>,
    inbox: Mutex<Inbox<Mailbox>>,
}

impl Registry {
    pub(super) fn new(servers: Arc<Servers>, releases: Arc<Releases>) -> Registry {
        Registry { servers, releases, inbox: Mutex::default() }
    }

    /// Registers a wait in line for its messages. `None`: this id already waits for this semaphore.
    pub(super) fn register(&self, keys: &Keys, id: &str, may_be_cancelled: bool) -> Option<Registered<'_>> {
        let clock = &self.servers.clock;
        let make = |secret| Arc::new(Mailbox::new(clock, Some(secret), may_be_cancelled));
        let mailbox = lock(&self.inbox).add(keys, id, Uuid::new_v4(), make)?;
        Some(self.registered(id, mailbox))
    }

    /// Registers a wait for the messages about `key`. Any number of threads may wait for the same key.
    pub(super) fn register_shared(&self, key: &str, may_be_cancelled: bool) -> Registered<'_> {
        let mailbox = Arc::new(Mailbox::new(&self.servers.clock, None, may_be_cancelled));
        lock(&self.inbox).add_shared(key, &mailbox);
        self.registered(key, mailbox)
    }

    fn registered(&self, id: &str, mailbox: Arc<Mailbox>) -> Registered<'_> {
        Registered { registry: self, id: id.to_owned(), mailbox }
    }

    /// A wait was given up and the server did not confirm it. A grant that still arrives for it is released.
    pub(super) fn give_up(&self, keys: &Keys, id: &str) {
        let now = self.servers.clock.now();
        lock(&self.inbox).give_up(now, keys, id);
    }

    /// Delivers a message of a channel.
    pub(super) fn deliver(&self, channel: &str, received: &Received) {
        let now = self.servers.clock.moment();
        // The lock is released here: a wait that gets its message ends, and needs the lock for that.
        let waiting = lock(&self.inbox).of(&received.message.id);
        let mut is_taken = false;
        for mailbox in waiting {
            is_taken |= mailbox.put(channel, received, now);
        }
        if !is_taken && let Some(release) = lock(&self.inbox).release_of(received) {
            self.releases.later([release]);
        }
    }

    /// Whether messages may arrive for which no waiting thread reads.
    pub(super) fn needs_reader(&self) -> bool {
        let inbox = lock(&self.inbox);
        inbox.has_given_up(self.servers.clock.now()) || inbox.all().any(|wait| !wait.may_read())
    }

    /// Wakes one thread to read the subscription of this channel. Returns whether there was one.
    pub(super) fn wake_a_reader(&self, channel: &str) -> bool {
        let inbox = lock(&self.inbox);
        inbox.all().any(|mailbox| mailbox.wake_to_read(channel))
    }

    /// Hints to all waits to ask again.
    pub(super) fn call_all(&self) {
        for mailbox in lock(&self.inbox).all() {
            mailbox.call();
        }
    }
}

/// A registered wait. Dropping this ends the registration.
pub(super) struct Registered<'a> {
    registry: &'a Registry,
    id: String,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.registry.inbox).remove(&self.id, &self.mailbox);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::mailbox::Look;
    use super::super::reading::Reading;
    use super::*;
    use crate::clock::Clock;
    use crate::transport::Timeouts;
    use crate::transport::address::Address;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    const SOON: Duration = Duration::from_secs(10);

    pub(in crate::wait) fn registry() -> Registry {
        let address = Address::parse("redis://127.0.0.1:1/").unwrap(); // no test connects to it
        let timeouts = Timeouts { connect: SOON, read: SOON, write: SOON };
        let servers = Servers::open(address, Clock::real(), timeouts, 1).unwrap();
        let servers = Arc::new(servers);
        Registry::new(servers.clone(), Arc::new(Releases::new(servers)))
    }

    #[test]
    fn a_waiter_that_is_woken_to_read_waits_for_messages_of_the_same_server() {
        let registry = registry();
        let (woken, was_woken) = channel();
        let servers = ["other", "other", "other", "this"];
        let waits = (0..).zip(servers).map(|(number, server)| {
            let keys = Keys::mutex("luagate", &format!("m{number}")).unwrap();
            let wait = registry.register(&keys, "id", false).unwrap();
            wait.mailbox.inbox(server);
            (wait, server)
        });
        let waits: Vec<_> = waits.collect();
        std::thread::scope(|scope| {
            for (wait, server) in waits {
                let woken = woken.clone();
                scope.spawn(move || {
                    let (until, reading) = (Instant::now() + SOON, Reading::default());
                    while let Look::Slept = wait.mailbox.look(until, Some(&reading)) {
                        woken.send(server).unwrap();
                    }
                });
            }
            let end = Instant::now() + SOON;
            for server in ["other", "this"] {
                while !registry.wake_a_reader(server) {
                    assert!(Instant::now() < end, "nobody sleeps");
                }
                assert_eq!(was_woken.recv_timeout(SOON), Ok(server));
            }
            registry.call_all();
        });
    }
}
