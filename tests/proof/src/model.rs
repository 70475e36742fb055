//! A readable model of a semaphore: its holders, its waiters, and the effect of each call. It loses nothing,
//! is never full, and has no keys. The scripts must reply as it does.

mod calls;
mod several;

use crate::scripts::Reply;
pub use several::AskOne;
use std::collections::BTreeMap;

/// Milliseconds; `None` means never.
pub type End = Option<u64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub permits: u32,
    pub fence: u64,
    pub ends: End,
    /// Until when the permits are in use even if they are released before; 0: no minimum hold.
    pub least_end: u64,
}

impl Holder {
    pub fn lives(&self, now: u64) -> bool {
        self.ends.is_none_or(|end| end > now)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    pub id: String,
    pub ticket: u64,
    pub permits: u32,
    pub lease_ms: u64,
    pub patience_until: u64,
    pub at_least_ms: u64,
    pub inbox: String,
}

impl Waiter {
    fn id(&self) -> &str {
        &self.id
    }
}

/// How many ended leases or waiters one script processes at most.
const BATCH: usize = 100;

/// How far a ticket may be ahead of the clock, in µs: the clock of an earlier server may have been ahead.
const MINUTE: u64 = 60_000_000;

/// How far down the line a script that stopped at this bound searches for a live waiter.
const FAR: usize = 1_000;

/// A message to a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reported {
    Grant {
        inbox: String,
        id: String,
        text: String,
    },
    /// Asks the waiter to ask again at once: it wants more than the limit, or the script stopped at its
    /// bound.
    Hint {
        inbox: String,
        id: String,
    },
    /// Its place in line was revoked.
    Revoked {
        inbox: String,
        id: String,
    },
}

/// The effects of a call apart from its reply.
#[derive(Debug, Default)]
pub struct Effects {
    pub reported: Vec<Reported>,
    /// The deadline of the waiter that stays first in line.
    head_until: End,
    /// How many left the line, granted or not.
    left: usize,
    /// More work is left than one script does.
    stopped: bool,
    /// The caller as a waiter, as it was before this call, unless it leaves the line.
    caller: Option<Waiter>,
}

/// The arguments of `acquire`; `permits` `None` means `all`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    pub id: String,
    pub permits: Option<u32>,
    pub limit: u32,
    pub lease_ms: u64,
    pub wait_ms: u64,
    pub inbox: String,
    pub ticket: u64,
    /// 0: joins a line of any length.
    pub max_waiting: u64,
    pub at_least_ms: u64,
    /// Joins the line as if it had come that much earlier.
    pub head_start_ms: u64,
}

/// One semaphore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    /// 0: no limit is stored.
    pub limit: u32,
    pub pinned: bool,
    /// The highest number given, as a fence or a ticket.
    pub last: u64,
    /// Includes holders whose lease has ended, until a call takes their permits back. Permits that are
    /// cooling down are stored under a name that is not a valid id.
    pub holders: BTreeMap<String, Holder>,
    /// In the order of their tickets.
    pub queue: Vec<Waiter>,
    pub exists: bool,
}

/// When a call runs, and which channels have a subscriber then.
pub struct Moment<'a> {
    pub micros: u64,
    pub listens: &'a dyn Fn(&str) -> bool,
}

impl Moment<'_> {
    fn ms(&self) -> u64 {
        self.micros / 1_000
    }
}

fn words(list: &[&dyn ToString]) -> Reply {
    Ok(list.iter().map(|word| word.to_string()).collect())
}

fn time(end: End) -> String {
    end.map_or("-1".to_owned(), |end| end.to_string())
}

fn end_of(now: u64, lease_ms: u64) -> End {
    (lease_ms > 0).then_some(now + lease_ms)
}

/// Whether the holder of this name stands for permits that were released before their minimum hold ended.
pub fn is_cooling(name: &str) -> bool {
    name.contains(' ')
}

/// The channel of an inbox, without the secret that may follow it.
pub fn channel(inbox: &str) -> &str {
    inbox.split('#').next().unwrap_or(inbox)
}

/// A message to an inbox: with a secret it ends with the SHA-1 of secret and message.
pub fn signed(inbox: &str, message: String) -> String {
    match inbox.split_once('#') {
        Some((_, secret)) => {
            let sum = sha1_smol::Sha1::from(format!("{secret}{message}"));
            format!("{message} {}", sum.digest())
        }
        None => message,
    }
}

impl Model {
    pub fn in_use(&self) -> u32 {
        self.holders.values().map(|holder| holder.permits).sum()
    }

    /// Whether permits of the grant with this fence are in use.
    pub fn knows(&self, fence: u64) -> bool {
        self.holders.values().any(|holder| holder.fence == fence)
    }

    fn fits(&self, permits: u32) -> bool {
        self.in_use().saturating_add(permits) <= self.limit
    }

    pub fn place(&self, id: &str) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.id == id)
    }

    fn leave(&mut self, id: &str) {
        self.queue.retain(|waiter| waiter.id != id);
    }

    fn next_number(&mut self, at: &Moment) -> u64 {
        self.last = (self.last + 1).max(at.micros);
        self.last
    }

    /// A lease is not shorter than the minimum hold.
    fn grant(&mut self, id: &str, permits: u32, lease_ms: u64, at_least_ms: u64, at: &Moment) -> Holder {
        let ends = end_of(at.ms(), lease_ms).map(|end| end.max(at.ms() + at_least_ms));
        let least_end = if at_least_ms > 0 { at.ms() + at_least_ms } else { 0 };
        let holder = Holder { permits, fence: self.next_number(at), ends, least_end };
        self.exists = true;
        self.holders.insert(id.to_owned(), holder.clone());
        holder
    }

    /// Takes all but `keep` permits from a holder. They become free at once, or when its minimum hold ends.
    fn give_back(&mut self, id: &str, keep: u32, at: &Moment) {
        let Some(holder) = self.holders.remove(id) else {
            return;
        };
        let cools = holder.least_end > at.ms();
        if cools && keep < holder.permits {
            let name = format!("{id} {keep} {}", holder.fence);
            let cooling =
                Holder { permits: holder.permits - keep, ends: Some(holder.least_end), ..holder.clone() };
            self.holders.insert(name, cooling);
        }
        if keep > 0 {
            // If one permit is left, a minimum hold that is over is forgotten.
            let least_end = if cools || keep > 1 { holder.least_end } else { 0 };
            self.holders.insert(id.to_owned(), Holder { permits: keep, least_end, ..holder });
        }
    }

    /// Names of the holders in the order of their lease ends.
    fn by_end(&self) -> Vec<(u64, String)> {
        let holders = self.holders.iter();
        let mut ends: Vec<_> =
            holders.map(|(id, holder)| (holder.ends.unwrap_or(u64::MAX), id.clone())).collect();
        ends.sort();
        ends
    }

    /// Takes back what has ended: of the hundred leases that end first, and the ended lease of this id.
    fn expire(&mut self, own: Option<&str>, at: &Moment) {
        for (end, id) in self.by_end().into_iter().take(BATCH) {
            if end <= at.ms() {
                self.holders.remove(&id);
            }
        }
        if let Some(own) = own {
            self.holders.remove(own);
        }
    }

    /// The ms until the k-th lease from now has ended, if it ends.
    fn end_of(&self, k: usize, at: &Moment) -> Option<u64> {
        let (end, _) = self.by_end().get(k - 1)?.clone();
        (end < u64::MAX).then_some(end.saturating_sub(at.ms()).max(1))
    }

    /// When a caller that is not in line should ask again; -1 means never.
    fn ask_again(&self, at: &Moment, effects: &Effects) -> String {
        if effects.stopped && !self.queue.is_empty() {
            return "1".to_owned();
        }
        let head = effects.head_until.map(|end| end.saturating_sub(at.ms()).max(1));
        time(self.end_of(1, at).or(head))
    }

    /// When a waiter with this many ahead should ask again if no message comes: after a second for each of
    /// them, which may all be dead, or when the first lease ends, but not within a second of its previous
    /// call. If the permits are cooling down, that end does not count.
    fn look_again(&self, ahead: usize, ask: &Ask, at: &Moment, effects: &Effects) -> u64 {
        if effects.stopped {
            return 1;
        }
        let (third, ahead) = ((ask.wait_ms / 3).max(1), ahead as u64);
        let latest = if ahead > 0 { third.min(1_000 * ahead) } else { third };
        let Some(end) = self.end_of(1, at).filter(|end| *end <= latest) else {
            return latest;
        };
        if ahead == 0 {
            return end;
        }
        if is_cooling(&self.by_end()[0].1) {
            return latest;
        }
        let after = end + (3 * ahead).min(60 + ahead / 50);
        let last =
            effects.caller.as_ref().map_or(0, |caller| caller.patience_until.saturating_sub(ask.wait_ms));
        let pause = 1_000_u64.saturating_sub(at.ms().saturating_sub(last));
        after.max(pause).min(latest)
    }

    /// Serves the first waiter, then the next, while enough permits are free. All that leave the line in one
    /// call, granted or not, count against the bound. Returns whether `me`, the caller, is next and enough
    /// permits are free for it.
    fn serve(&mut self, me: Option<(&str, u32)>, at: &Moment, effects: &mut Effects) -> bool {
        self.serve_before(0, me, at, effects)
    }

    /// As `serve`, but only those before the last `behind` waiters.
    fn serve_before(
        &mut self,
        behind: usize,
        me: Option<(&str, u32)>,
        at: &Moment,
        effects: &mut Effects,
    ) -> bool {
        while effects.left < BATCH {
            if behind > 0 && self.queue.len() == behind {
                return false;
            }
            let Some(head) = self.queue.first().cloned() else {
                return false;
            };
            if let Some((id, permits)) = me
                && head.id == id
            {
                effects.left += 1;
                return self.fits(permits);
            }
            effects.left += 1;
            let something_is_free = self.in_use() < self.limit;
            let silent = !head.inbox.is_empty() && !(at.listens)(channel(&head.inbox));
            let (id, inbox) = (head.id.clone(), head.inbox.clone());
            if head.patience_until <= at.ms() || something_is_free && silent {
                self.leave(&id);
            } else if head.permits > self.limit {
                self.leave(&id);
                effects.reported.push(Reported::Hint { inbox, id });
            } else if inbox.is_empty() || !self.fits(head.permits) {
                if effects.left == BATCH {
                    break; // it counts, so no waiter behind it is processed
                }
                effects.left -= 1;
                effects.head_until = Some(head.patience_until);
                return false; // stays first, and free permits are reserved for it
            } else {
                self.leave(&id);
                let holder = self.grant(&id, head.permits, head.lease_ms, head.at_least_ms, at);
                let ends = time(holder.ends);
                let text = format!("{id} {} {} {ends} {}", holder.permits, holder.fence, at.ms());
                let text = signed(&inbox, text);
                effects.reported.push(Reported::Grant { inbox, id, text });
            }
        }
        effects.stopped = !self.queue.is_empty();
        let lives = |waiter: &&Waiter| {
            let listens = !waiter.inbox.is_empty() && (at.listens)(channel(&waiter.inbox));
            listens && waiter.patience_until > at.ms()
        };
        let known = |waiter| match me {
            Some((id, _)) if id == Waiter::id(waiter) => effects.caller.as_ref(),
            _ => Some(waiter),
        };
        let next = self.queue.iter().take(FAR).filter_map(known).find(lives);
        if let Some(Waiter { id, inbox, .. }) = next.cloned() {
            effects.reported.push(Reported::Hint { inbox, id });
        }
        false
    }

    /// Whether fewer than `max_waiting` wait before the last `behind` waiters. If it is full, dead waiters
    /// are removed first, as far as one script checks.
    fn has_room(&mut self, max_waiting: u64, behind: usize, at: &Moment, effects: &mut Effects) -> bool {
        let is_full = |model: &Model| max_waiting > 0 && (model.queue.len() - behind) as u64 >= max_waiting;
        if is_full(self) && !effects.stopped {
            let first = self.queue.first().map(|waiter| waiter.ticket);
            let lives = |waiter: &Waiter| {
                let listens = waiter.inbox.is_empty() || (at.listens)(channel(&waiter.inbox));
                listens && waiter.patience_until > at.ms()
            };
            let rest = self.queue.split_off((self.queue.len() - behind).min(BATCH));
            self.queue.retain(lives);
            self.queue.extend(rest);
            if self.queue.first().map(|waiter| waiter.ticket) != first {
                effects.head_until = Some(0); // the next call checks who is first
            }
        }
        !is_full(self)
    }

    /// The highest ticket that a server may have given: a minute after the clock, or the last number.
    pub fn highest_ticket(&self, micros: u64) -> u64 {
        self.last.max(micros + MINUTE)
    }

    /// The ticket of a call. One that no server gave counts as none, which is 0.
    pub fn ticket_of(&self, ask: &Ask, micros: u64) -> u64 {
        if ask.ticket <= self.highest_ticket(micros) { ask.ticket } else { 0 }
    }

    /// The ticket of a new waiter with a head start: the next number, that much lower.
    pub fn early_ticket(&self, ask: &Ask, micros: u64) -> u64 {
        (self.last + 1).max(micros).saturating_sub(ask.head_start_ms * 1_000).max(1)
    }

    /// Assigns a place in line: the place it has, or that of its ticket, or a new one with this ticket, or
    /// the last. The latest arguments count.
    fn stand_in_line(&mut self, ask: &Ask, early: Option<u64>, at: &Moment) {
        let ticket = match self.place(&ask.id) {
            Some(place) => self.queue[place].ticket,
            None if ask.ticket > 0 => {
                let joined = ask.ticket + ask.head_start_ms * 1_000;
                self.last = self.last.max(joined.min(self.highest_ticket(at.micros)));
                ask.ticket
            }
            None => {
                let number = self.next_number(at);
                early.unwrap_or(number)
            }
        };
        self.leave(&ask.id);
        self.queue.push(Waiter {
            id: ask.id.clone(),
            ticket,
            permits: ask.permits.unwrap_or(1),
            lease_ms: if ask.lease_ms > 0 { ask.lease_ms.max(ask.at_least_ms) } else { 0 },
            patience_until: at.ms() + ask.wait_ms,
            at_least_ms: ask.at_least_ms,
            inbox: ask.inbox.clone(),
        });
        self.queue.sort_by(|a, b| (a.ticket, &a.id).cmp(&(b.ticket, &b.id)));
    }
}
