//! For how long a server has sent nothing. Only the time in reads counts: a reply that nobody has read yet is
//! not late.

use crate::clock::machine_now;
use crate::sync::fault;
use std::time::{Duration, Instant};

pub(super) struct Silence {
    /// When somebody was last seen to read.
    read: Instant,
    /// For how long reads have waited in vain: since something arrived, or since the first missing packet was
    /// submitted.
    vain: Duration,
    vain_from: Instant,
    /// Since then the server counts as silent.
    since: Option<Instant>,
}

impl Silence {
    pub(super) fn new() -> Silence {
        let now = machine_now();
        Silence { read: now, vain: Duration::ZERO, vain_from: now, since: None }
    }

    /// The first of the missing packets is submitted.
    pub(super) fn begins(&mut self) {
        (self.vain, self.vain_from) = (Duration::ZERO, machine_now());
    }

    /// Somebody begins to read.
    pub(super) fn reads(&mut self) {
        self.read = machine_now();
    }

    pub(super) fn arrived(&mut self, now: Instant) {
        (self.read, self.vain, self.vain_from) = (now, Duration::ZERO, now);
    }

    /// A read has waited for this long in vain. It may have begun before the first missing packet.
    pub(super) fn waited(&mut self, within: Duration, now: Instant) {
        self.read = now;
        if fault!("a silent server is not noticed") {
            return;
        }
        self.vain += within.min(now.saturating_duration_since(self.vain_from));
    }

    pub(super) fn vain(&self) -> Duration {
        self.vain
    }

    /// For how long nobody was seen to read.
    pub(super) fn unread(&self) -> Duration {
        machine_now().saturating_duration_since(self.read)
    }

    /// The server counts as silent. Returns for how long it does.
    pub(super) fn declare(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.since.get_or_insert(now))
    }

    pub(super) fn is_declared(&self) -> bool {
        self.since.is_some()
    }
}
