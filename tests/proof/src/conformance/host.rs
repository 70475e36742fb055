//! The servers on which the cases run.

use luagate_memory::{Server, Store};
use redis::ConnectionLike;
use std::collections::BTreeMap;

/// How far the clock of a server in memory advances per call, in µs.
const STEP: u64 = 1;

/// A server on which cases run.
pub trait Host {
    fn connection(&mut self) -> &mut dyn ConnectionLike;
    /// Returns once the subscription is active.
    fn subscribe(&mut self, channel: &str);
    fn unsubscribe(&mut self, channel: &str);
    /// Every message that was published on a channel since the last call.
    fn messages(&mut self, channel: &str) -> Vec<String>;
    fn pause(&mut self, ms: u64);
    fn set_full(&mut self, full: bool);
    /// The possible difference in a key's expiry, in ms, because the server reads its clock twice.
    fn tolerance(&self) -> i64;
    /// A case begins. It must not see anything of an earlier case.
    fn begin(&mut self) {}
    /// A script is about to run. If `counts`, its commands are counted.
    fn before_script(&mut self, counts: bool);
    /// How many commands the last script called, if known.
    fn calls_of_last_script(&mut self) -> Option<u64>;
    /// The stored data, if accessible.
    fn store(&mut self) -> Option<Store>;
}

/// A server in this process. Its clock advances only by steps and pauses.
pub struct Memory {
    server: Server,
    received: BTreeMap<String, Vec<String>>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { server: Server::new().unwrap(), received: BTreeMap::new() }
    }
}

impl Memory {
    fn advance(&mut self, micros: u64) {
        self.server.with_store(|store| store.set_micros(store.micros() + micros));
    }
}

impl Host for Memory {
    fn connection(&mut self) -> &mut dyn ConnectionLike {
        &mut self.server
    }

    fn subscribe(&mut self, channel: &str) {
        self.server.set_listeners(channel.as_bytes(), 1);
        self.received.insert(channel.to_owned(), Vec::new());
    }

    fn unsubscribe(&mut self, channel: &str) {
        self.server.set_listeners(channel.as_bytes(), 0);
    }

    fn messages(&mut self, channel: &str) -> Vec<String> {
        for (channel, message) in self.server.take_published() {
            let received = self.received.get_mut(&*String::from_utf8_lossy(&channel));
            if let Some(received) = received {
                received.push(String::from_utf8_lossy(&message).into_owned());
            }
        }
        self.received.get_mut(channel).map(std::mem::take).unwrap_or_default()
    }

    fn pause(&mut self, ms: u64) {
        self.advance(ms * 1_000);
    }

    fn set_full(&mut self, full: bool) {
        self.server.set_full(full);
    }

    fn tolerance(&self) -> i64 {
        0
    }

    /// Begins at the start of a millisecond, so that what lasts as long as a pause ends exactly with the
    /// pause.
    fn begin(&mut self) {
        let micros = self.server.with_store(|store| store.micros());
        let mut store = Store::default();
        store.set_micros((micros / 1_000 + 1) * 1_000);
        self.server.set_store(store);
        self.received.clear();
    }

    fn before_script(&mut self, _counts: bool) {
        self.advance(STEP);
    }

    fn calls_of_last_script(&mut self) -> Option<u64> {
        Some(self.server.calls_of_last_script())
    }

    fn store(&mut self) -> Option<Store> {
        Some(self.server.store())
    }
}
