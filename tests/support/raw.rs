//! One semaphore, used directly through the scripts, like a client in any language.

use super::{SOON, Server};
use luagate::errors::CallError;
use luagate::scripts::Keys;
use luagate::scripts::semaphore::{
    self, AcquireAnswer, Ask, Grant, LookupAnswer, ReleaseAnswer, ResizeAnswer, State,
};
use redis::{Commands, Connection};
use std::time::{Duration, Instant};

pub struct Raw {
    pub con: Connection,
    pub keys: Keys,
    /// The limit in `ask`.
    pub limit: u32,
}

impl Raw {
    pub fn new(server: &Server, limit: u32) -> Raw {
        Raw::named(server, "raw", limit)
    }

    pub fn named(server: &Server, name: &str, limit: u32) -> Raw {
        Raw { con: server.connection(), keys: server.keys(name), limit }
    }

    /// One permit for 10 s, at once.
    pub fn ask<'a>(&self, id: &'a str) -> Ask<'a> {
        Ask { id, limit: self.limit, lease_ms: 10_000, ..Ask::default() }
    }

    pub fn acquire(&mut self, ask: Ask) -> AcquireAnswer {
        self.try_acquire(ask).unwrap()
    }

    pub fn try_acquire(&mut self, ask: Ask) -> Result<AcquireAnswer, CallError> {
        semaphore::acquire(&mut self.con, &self.keys, &ask)
    }

    /// Asks, and must be granted.
    #[track_caller]
    pub fn grant(&mut self, ask: Ask) -> Grant {
        match self.acquire(ask) {
            AcquireAnswer::Granted(grant, _) => grant,
            other => panic!("expected a grant for {ask:?}, got {other:?}"),
        }
    }

    /// Asks in line, and must be queued. Returns the ticket.
    #[track_caller]
    pub fn queue(&mut self, ask: Ask) -> u64 {
        match self.acquire(ask) {
            AcquireAnswer::Queued { ticket, .. } => ticket,
            other => panic!("expected a place in line for {ask:?}, got {other:?}"),
        }
    }

    #[track_caller]
    pub fn assert_denied(&mut self, ask: Ask) {
        let answer = self.acquire(ask);
        assert!(
            matches!(answer, AcquireAnswer::Denied { .. }),
            "expected a refusal of {ask:?}, got {answer:?}"
        );
    }

    pub fn release(&mut self, id: &str) -> ReleaseAnswer {
        semaphore::release(&mut self.con, &self.keys, id, 0, None).unwrap()
    }

    /// Releases only the permit with this fence.
    pub fn release_of(&mut self, id: &str, fence: u64) -> ReleaseAnswer {
        semaphore::release(&mut self.con, &self.keys, id, 0, Some(fence)).unwrap()
    }

    #[track_caller]
    pub fn assert_released(&mut self, id: &str) {
        let answer = self.release(id);
        assert!(matches!(answer, ReleaseAnswer::Released { left: 0, .. }), "{id}: {answer:?}");
    }

    pub fn keep(&mut self, id: &str, keep: u32) -> Result<ReleaseAnswer, CallError> {
        semaphore::release(&mut self.con, &self.keys, id, keep, None)
    }

    pub fn refresh(&mut self, id: &str, lease_ms: u64) -> Option<Grant> {
        semaphore::refresh(&mut self.con, &self.keys, id, lease_ms, None).unwrap()
    }

    /// Refreshes only the permit with this fence.
    pub fn refresh_of(&mut self, id: &str, lease_ms: u64, fence: u64) -> Option<Grant> {
        semaphore::refresh(&mut self.con, &self.keys, id, lease_ms, Some(fence)).unwrap()
    }

    pub fn lookup(&mut self, id: &str) -> LookupAnswer {
        semaphore::lookup(&mut self.con, &self.keys, id).unwrap()
    }

    pub fn holds(&mut self, id: &str) -> bool {
        matches!(self.lookup(id), LookupAnswer::Held(_))
    }

    pub fn resize(&mut self, limit: u32, expected: Option<u32>) -> ResizeAnswer {
        semaphore::resize(&mut self.con, &self.keys, limit, expected).unwrap()
    }

    pub fn resize_result(&mut self, limit: u32) -> Result<ResizeAnswer, CallError> {
        semaphore::resize(&mut self.con, &self.keys, limit, None)
    }

    pub fn inspect(&mut self) -> State {
        semaphore::inspect(&mut self.con, &self.keys, 0, 1_000).unwrap()
    }

    pub fn in_use(&mut self) -> u32 {
        self.inspect().in_use
    }

    /// The three keys of the semaphore: meta, holders, queue.
    pub fn key_names(&self) -> [String; 3] {
        self.keys.list().map(str::to_owned)
    }

    /// The content of the keys, to see if a call changed them.
    pub fn dump(&mut self) -> Vec<Option<Vec<u8>>> {
        let names = self.key_names();
        names.iter().map(|key| redis::cmd("DUMP").arg(key).query(&mut self.con).unwrap()).collect()
    }

    /// The time to live of each key in ms; -1: no end, -2: no key.
    pub fn ttls(&mut self) -> [i64; 3] {
        self.key_names().map(|key| self.con.pttl(&key).unwrap())
    }

    /// The server's clock, in ms.
    pub fn server_ms(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.con).unwrap();
        seconds * 1_000 + micros / 1_000
    }

    /// Blocks until the server's clock has reached `ms`.
    pub fn wait_until(&mut self, ms: u64) {
        super::eventually("the server's clock has reached the time", || {
            (self.server_ms() >= ms).then_some(())
        });
    }
}

/// A subscriber of one channel.
pub struct Listener {
    con: Connection,
    pub channel: String,
}

impl Listener {
    pub fn new(server: &Server, name: &str) -> Listener {
        Listener::on(server, &format!("{}:inbox:{name}", server.prefix))
    }

    /// Subscribes to exactly this channel.
    pub fn on(server: &Server, channel: &str) -> Listener {
        let mut con = server.connection();
        redis::cmd("SUBSCRIBE").arg(channel).set_no_response(true).exec(&mut con).unwrap();
        con.recv_response().unwrap();
        Listener { con, channel: channel.to_owned() }
    }

    /// The next message, as words.
    #[track_caller]
    pub fn next(&mut self) -> Vec<String> {
        self.next_within(SOON).expect("a message arrives")
    }

    /// The next message that is a grant. Skips hints.
    #[track_caller]
    pub fn next_grant(&mut self) -> Vec<String> {
        loop {
            let words = self.next();
            if words[2] != "0" {
                return words;
            }
        }
    }

    /// Whether no message has arrived. Any earlier message would arrive before the one that this sends.
    pub fn is_silent(&mut self, server: &Server) -> bool {
        let _: () = server.connection().publish(&self.channel, "end of the test").unwrap();
        self.next() == ["end", "of", "the", "test"]
    }

    /// A message, unless none arrives within `time`.
    pub fn next_within(&mut self, time: Duration) -> Option<Vec<String>> {
        let end = Instant::now() + time;
        let value = loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.con.set_read_timeout(Some(left)).unwrap();
            match self.con.recv_response() {
                Ok(value) => break value,
                Err(error) if error.is_connection_dropped() => return None,
                Err(_) => {} // nothing arrived in time, or the machine has frozen this process meanwhile
            }
        };
        let text: String = redis::Msg::from_owned_value(value)?.get_payload().ok()?;
        Some(text.split(' ').map(str::to_owned).collect())
    }
}
