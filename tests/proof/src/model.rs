//! What a semaphore is, written for reading: who holds, who waits, and what each call does. It forgets nothing, is never
//! full, and knows nothing of keys. The scripts have to answer as it does.

mod calls;
mod several;

use crate::scripts::Reply;
pub use several::AskOne;
use std::collections::BTreeMap;

/// Milliseconds; `None` stands for never.
pub type End = Option<u64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub permits: u32,
    pub fence: u64,
    pub ends: End,
    /// Until when the permits are in use, though they are given back before; 0: no minimum hold.
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

/// How many of those that have ended, or wait, a script deals with at most.
const BATCH: usize = 100;

/// How far a script that stopped at this bound looks for somebody who lives.
const FAR: usize = 1_000;

/// What goes out to a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Grant {
        inbox: String,
        id: String,
        text: String,
    },
    /// To ask again at once: it wants more than the limit, or the script stopped at its bound.
    Hint {
        inbox: String,
        id: String,
    },
    /// That its place in line was taken away.
    Revoked {
        inbox: String,
        id: String,
    },
}

/// What a call does beside its reply.
#[derive(Debug, Default)]
pub struct Effects {
    pub told: Vec<Told>,
    /// Until when the waiter lives that stays at the head.
    head_until: End,
    /// How many left the line, granted or not.
    left: usize,
    /// There is more to do than one script does.
    stopped: bool,
    /// The caller as a waiter, as it was before it called.
    caller: Option<Waiter>,
}

/// The arguments of `acquire`; `permits` `None` is `all`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    pub id: String,
    pub permits: Option<u32>,
    pub limit: u32,
    pub lease_ms: u64,
    pub wait_ms: u64,
    pub inbox: String,
    pub ticket: u64,
    /// 0: joins any line.
    pub max_waiting: u64,
    pub at_least_ms: u64,
}

/// One semaphore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    /// 0: none is stored.
    pub limit: u32,
    pub pinned: bool,
    /// The highest number given, as a fence or a ticket.
    pub last: u64,
    /// Those whose lease has ended stay until a call takes their permits back. What cools down is among them, under a name that no
    /// id can be.
    pub holders: BTreeMap<String, Holder>,
    /// In the order of their tickets.
    pub queue: Vec<Waiter>,
    pub exists: bool,
}

/// When a call runs, and who listens then.
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

/// Whether a holder of this name is permits that were given back before their minimum hold ended.
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

    /// Takes all but so many permits from a holder. They are free, or in use until its minimum hold ends.
    fn give_back(&mut self, id: &str, keep: u32, at: &Moment) {
        let Some(holder) = self.holders.remove(id) else {
            return;
        };
        let cools = holder.least_end > at.ms();
        if cools && keep < holder.permits {
            let name = format!("{id} {keep} {}", holder.fence);
            let cooling = Holder { permits: holder.permits - keep, ends: Some(holder.least_end), ..holder.clone() };
            self.holders.insert(name, cooling);
        }
        if keep > 0 {
            // Of one permit a minimum hold that is over is forgotten.
            let least_end = if cools || keep > 1 { holder.least_end } else { 0 };
            self.holders.insert(id.to_owned(), Holder { permits: keep, least_end, ..holder });
        }
    }

    /// Who holds, whose lease ends first first.
    fn by_end(&self) -> Vec<(u64, String)> {
        let holders = self.holders.iter();
        let mut ends: Vec<_> = holders.map(|(id, holder)| (holder.ends.unwrap_or(u64::MAX), id.clone())).collect();
        ends.sort();
        ends
    }

    /// Takes back what has ended.
    fn expire(&mut self, at: &Moment) {
        for (end, id) in self.by_end().into_iter().take(BATCH) {
            if end <= at.ms() {
                self.holders.remove(&id);
            }
        }
    }

    /// How long it is until the k-th lease to end has ended, where it does.
    fn end_of(&self, k: usize, at: &Moment) -> Option<u64> {
        let (end, _) = self.by_end().get(k - 1)?.clone();
        (end < u64::MAX).then_some(end.saturating_sub(at.ms()).max(1))
    }

    /// When whoever does not stand in line should ask again: -1 stands for never.
    fn ask_again(&self, at: &Moment, effects: &Effects) -> String {
        if effects.stopped {
            return "1".to_owned();
        }
        let head = effects.head_until.map(|end| end.saturating_sub(at.ms()).max(1));
        time(self.end_of(1, at).or(head))
    }

    /// When a waiter at this place should ask again without a message. One that asked before, and has only dead ones in front,
    /// watches as the head does.
    fn look_again(&self, place: usize, asked_before: bool, wait_ms: u64, at: &Moment, effects: &Effects) -> u64 {
        let third = (wait_ms / 3).max(1);
        if effects.stopped {
            return 1;
        }
        let mut in_front = self.queue[..place].iter();
        let listens = |waiter: &Waiter| waiter.inbox.is_empty() || (at.listens)(channel(&waiter.inbox));
        let is_head = asked_before && place < 10 && !in_front.any(listens);
        let watch = if is_head { 1 } else { place + 1 };
        self.end_of(watch, at).unwrap_or(third).min(third)
    }

    /// Serves the head of the queue, then the next, while what is free is enough for it. All that leave the line in one call,
    /// granted or not, count against the bound. Whether it is the turn of `me`, who is
    /// calling, and enough is free for it.
    fn serve(&mut self, me: Option<(&str, u32)>, at: &Moment, effects: &mut Effects) -> bool {
        while effects.left < BATCH {
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
                effects.told.push(Told::Hint { inbox, id });
            } else if inbox.is_empty() || !self.fits(head.permits) {
                if effects.left == BATCH {
                    break; // it was looked at, so nobody behind it is
                }
                effects.left -= 1;
                effects.head_until = Some(head.patience_until);
                return false; // stays at the head, and what is free is kept for it
            } else {
                self.leave(&id);
                let holder = self.grant(&id, head.permits, head.lease_ms, head.at_least_ms, at);
                let ends = time(holder.ends);
                let text = format!("{id} {} {} {ends} {}", holder.permits, holder.fence, at.ms());
                let text = signed(&inbox, text);
                effects.told.push(Told::Grant { inbox, id, text });
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
            effects.told.push(Told::Hint { inbox, id });
        }
        false
    }

    /// Whether so few wait that one more may join. Where the line is full those leave it that are gone, as far as one script looks.
    fn has_room(&mut self, max_waiting: u64, at: &Moment, effects: &mut Effects) -> bool {
        let is_full = |model: &Model| max_waiting > 0 && model.queue.len() as u64 >= max_waiting;
        if is_full(self) && !effects.stopped {
            let first = self.queue.first().map(|waiter| waiter.ticket);
            let lives = |waiter: &Waiter| {
                let listens = waiter.inbox.is_empty() || (at.listens)(channel(&waiter.inbox));
                listens && waiter.patience_until > at.ms()
            };
            let behind = self.queue.split_off(self.queue.len().min(BATCH));
            self.queue.retain(lives);
            self.queue.extend(behind);
            if self.queue.first().map(|waiter| waiter.ticket) != first {
                effects.head_until = Some(0); // the next call looks who is first
            }
        }
        !is_full(self)
    }

    /// A place in line: the one it has, or that of its ticket, or the last. The latest arguments count.
    fn stand_in_line(&mut self, ask: &Ask, at: &Moment) {
        let ticket = match self.place(&ask.id) {
            Some(place) => self.queue[place].ticket,
            None if ask.ticket > 0 => {
                self.last = self.last.max(ask.ticket);
                ask.ticket
            }
            None => self.next_number(at),
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
