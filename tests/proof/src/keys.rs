//! Reads the keys of a semaphore in the format of the scripts.

use crate::ledger::{Check, Ledger, broken};
use crate::model::{End, Holder, Model, Waiter};
use crate::protocol::keys::Keys;
use luagate_memory::Server;

/// The content of the three keys.
#[derive(Debug, Default)]
pub struct State {
    readable: bool,
    pub limit: u32,
    extra: u64,
    next_end: f64,
    last_end: u64,
    pub expiry: u64,
    pinned: bool,
    /// Granting is suspended because keys were lost.
    pub suspended: bool,
    /// Until when the first waiter stays first while no permit is free; infinity: the line is empty.
    head_until: f64,
    last: u64,
    fields: usize,
    holders: Vec<(String, End, Option<Vec<u8>>)>,
    queue: Vec<(String, u64, Option<Vec<u8>>)>,
    /// The expiry of each key; `None` if the key does not exist.
    ends: [Option<Option<u64>>; 3],
}

fn ask<T: redis::FromRedisValue>(server: &mut Server, command: &str, key: &str, rest: &[&str]) -> T {
    let call = redis::cmd(command).arg(key).arg(rest).query(server);
    call.unwrap_or_else(|error| panic!("{command} {key}: {error}"))
}

/// The numbers at the beginning of a state or a record, as the scripts pack them.
fn numbers(packed: &[u8]) -> Vec<f64> {
    let (numbers, _) = packed.as_chunks();
    numbers.iter().copied().map(f64::from_le_bytes).collect()
}

/// A waiter's record, as the scripts pack it. All 0 if the record is missing.
#[derive(Default)]
struct PackedWaiter {
    permits: u32,
    asks_before: u32,
    lease_ms: u64,
    patience_until: u64,
    at_least_ms: u64,
    inbox: String,
}

impl PackedWaiter {
    fn of(record: &Option<Vec<u8>>) -> PackedWaiter {
        let record = record.as_deref().unwrap_or_default();
        let Some((packed, inbox)) = record.split_at_checked(32) else { return PackedWaiter::default() };
        let small =
            |at: usize| u32::from_le_bytes([packed[at], packed[at + 1], packed[at + 2], packed[at + 3]]);
        let number = |range: std::ops::Range<usize>| numbers(&packed[range])[0] as u64;
        PackedWaiter {
            permits: small(0),
            asks_before: small(20),
            lease_ms: number(4..12),
            patience_until: number(12..20),
            at_least_ms: number(24..32),
            inbox: String::from_utf8_lossy(inbox).into_owned(),
        }
    }
}

impl State {
    /// `None` if no key is left.
    pub(crate) fn read(server: &mut Server, keys: &Keys) -> Option<State> {
        let end = |key: &str| server.with_store(|store| store.expires_at(key.as_bytes()));
        let ends = keys.list().map(end);
        if ends.iter().all(Option::is_none) {
            return None;
        }
        let [meta, holders, queue] = keys.list();
        let mut state = State { ends, ..State::default() };
        let stored: Option<Vec<u8>> = ask(server, "HGET", meta, &["the state"]);
        if let Some(stored) = stored.filter(|stored| stored.len() == 53 && stored[0] / 4 == 1) {
            let numbers = numbers(&stored[5..]);
            state.limit = u32::from_le_bytes([stored[1], stored[2], stored[3], stored[4]]);
            (state.extra, state.next_end) = (numbers[0] as u64, numbers[1]);
            (state.last_end, state.expiry) = (numbers[2] as u64, numbers[3] as u64);
            (state.last, state.head_until) = (numbers[4] as u64, numbers[5]);
            (state.pinned, state.suspended) = (stored[0] & 2 > 0, stored[0] & 1 > 0);
            state.readable = true;
        }
        state.fields = ask(server, "HLEN", meta, &[]);
        let rows: Vec<(String, String)> = ask(server, "ZRANGE", holders, &["0", "-1", "WITHSCORES"]);
        for (id, score) in rows {
            let record = ask(server, "HGET", meta, &[&id]);
            state.holders.push((id, score.parse().ok(), record));
        }
        let rows: Vec<(String, u64)> = ask(server, "ZRANGE", queue, &["0", "-1", "WITHSCORES"]);
        for (id, ticket) in rows {
            let record = ask(server, "HGET", meta, &[&id]);
            state.queue.push((id, ticket, record));
        }
        Some(state)
    }

    /// Whether the keys are consistent, by the rules of the scripts.
    pub fn is_consistent(&self, now: u64) -> bool {
        let records = if self.suspended { 0 } else { self.holders.len() } + self.queue.len();
        let bound_is_lost = self.suspended && self.holders.is_empty() && self.last_end > now;
        self.readable && self.fields == 1 + records && !bound_is_lost
    }

    /// Whether `meta` has a record of each waiter in the queue. If the queue was restored alone, a release
    /// may remove an entry without a record before the entries are counted, so that their number is right.
    /// The scripts notice the next such entry when it is the first.
    pub fn knows_queue(&self) -> bool {
        self.queue.iter().all(|(_, _, record)| record.is_some())
    }

    /// `meta` says that the line is empty, but the queue has entries. A call that changes no bound does not
    /// read the queue. The next call that does will notice.
    pub fn overlooks_queue(&self) -> bool {
        self.head_until.is_infinite() && self.fields == 1 + self.holders.len() && !self.queue.is_empty()
    }

    /// The end of the last lease in `holders` or recorded in `meta`.
    pub fn latest_end(&self) -> Option<u64> {
        let ends = self.holders.iter().filter_map(|(_, ends, _)| *ends);
        ends.chain([self.last_end]).max()
    }

    /// The times that the scripts store and the model does not have: bounds of the leases, the keys' expiry,
    /// and for each waiter, in queue order, when it plans to ask again.
    pub fn times(&self) -> Vec<u64> {
        let asks = self.queue.iter().map(|(_, _, record)| {
            let waiter = PackedWaiter::of(record);
            waiter.patience_until.wrapping_sub(waiter.asks_before.into())
        });
        let bounds = [self.next_end as u64, self.last_end, self.expiry];
        bounds.into_iter().chain(asks).collect()
    }

    /// Whether this id holds a permit with this fence.
    pub fn holds(&self, id: &str, fence: u64) -> bool {
        let fence_of =
            |record: &Option<Vec<u8>>| numbers(record.as_deref().unwrap_or_default()).first().copied();
        let mut holders = self.holders.iter();
        holders.any(|(other, _, record)| other == id && fence_of(record) == Some(fence as f64))
    }

    /// The length of the line.
    pub fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    pub fn has_permanent(&self) -> bool {
        self.holders.iter().any(|(_, ends, _)| ends.is_none())
    }

    /// Checks that a semaphore whose granting is suspended (keys were lost, and the last known lease has not
    /// ended) stores no more than it needs.
    pub fn check_suspended(&self, latest: u64) -> Check {
        if !self.suspended {
            return Ok(());
        }
        let stays = self.pinned || self.has_permanent();
        let ends = (self.expiry > 0).then_some(self.expiry);
        let known = self.holders.iter().filter_map(|(_, ends, _)| *ends).max().unwrap_or(0);
        let wrong = if self.extra != 0 || self.next_end < f64::INFINITY {
            "extra or next_end"
        } else if stays != (self.expiry == 0)
            || !stays && !(known..=latest.max(known) + 61_000).contains(&self.expiry)
        {
            "expiry"
        } else if self.ends.iter().flatten().any(|end| *end != ends) {
            "the keys' ends"
        } else {
            return Ok(());
        };
        broken("state", format!("suspended, {wrong}: {self:?}"))
    }

    /// The model with this state.
    pub fn to_model(&self) -> Model {
        let mut model = Model {
            limit: self.limit,
            pinned: self.pinned,
            last: self.last,
            exists: true,
            ..Model::default()
        };
        for (id, ends, record) in &self.holders {
            let record = record.as_deref().unwrap_or_default();
            let permits = record.get(8..12).and_then(|bytes| bytes.try_into().ok());
            let least_end = record.get(12..20).and_then(|bytes| bytes.try_into().ok());
            let holder = Holder {
                permits: permits.map_or(1, u32::from_le_bytes),
                least_end: least_end.map_or(0.0, f64::from_le_bytes) as u64,
                fence: numbers(record).first().map_or(0, |fence| *fence as u64),
                ends: *ends,
            };
            model.holders.insert(id.clone(), holder);
        }
        for (id, ticket, record) in &self.queue {
            let PackedWaiter { permits, lease_ms, patience_until, at_least_ms, inbox, .. } =
                PackedWaiter::of(record);
            let (id, ticket) = (id.clone(), *ticket);
            model.queue.push(Waiter { id, ticket, permits, lease_ms, patience_until, at_least_ms, inbox });
        }
        model
    }

    /// Checks that this equals the model, and that the additional fields fit: bounds of the leases, and the
    /// keys' expiry.
    pub fn check(&self, model: &Model, ledger: &Ledger) -> Check {
        if !self.readable || self.suspended || self.to_model() != *model {
            return broken("state", format!("expected {model:?}, got {self:?}"));
        }
        let finite = || model.holders.values().filter_map(|holder| holder.ends);
        let extra: u64 = model.holders.values().map(|holder| u64::from(holder.permits) - 1).sum();
        let stays = model.pinned || self.has_permanent();
        let ends = (self.expiry > 0).then_some(self.expiry);
        let patience = model.queue.iter().filter(|_| !ledger.is_brief);
        let patience = patience.map(|waiter| waiter.patience_until);
        let needed = finite().chain(patience).max();
        let wrong = if self.extra != extra {
            "extra"
        } else if finite().any(|end| self.next_end > end as f64) {
            "next_end"
        } else if finite().any(|end| self.last_end < end) {
            "last_end"
        } else if stays != (self.expiry == 0) || !stays && needed.is_some_and(|end| self.expiry < end) {
            "expiry"
        } else if !stays && self.expiry > ledger.latest + 61_000 {
            "expiry, too late"
        } else if self.ends.iter().flatten().any(|end| *end != ends) {
            "the keys' ends"
        } else if self.fields != 1 + self.holders.len() + self.queue.len() {
            "the number of records"
        } else if !self.queue.is_empty() && self.head_until == f64::INFINITY {
            "waiters, but `head_until` says that the line is empty"
        } else {
            return Ok(());
        };
        broken("state", format!("{wrong}: {self:?}"))
    }
}
