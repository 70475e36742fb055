//! What a semaphore is, written for reading: who holds, who waits, and what each call does. It forgets nothing, is never
//! full, and knows nothing of keys. The scripts have to answer as it does.

use crate::scripts::Reply;
use std::collections::BTreeMap;

/// Stands in a reply for a number that the model does not say.
pub const ANY: &str = "*";

/// Milliseconds; `None` stands for never.
pub type End = Option<u64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub permits: u32,
    pub fence: u64,
    pub ends: End,
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
    pub inbox: String,
}

/// What goes out to a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Grant {
        inbox: String,
        id: String,
        text: String,
    },
    /// It left the queue for wanting more than the limit.
    TooMuch { inbox: String, id: String },
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
}

/// One semaphore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    /// 0: none is stored.
    pub limit: u32,
    pub pinned: bool,
    /// The highest number given, as a fence or a ticket.
    pub last: u64,
    /// Those whose lease has ended stay until a call takes their permits back.
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

    fn grant(&mut self, id: &str, permits: u32, lease_ms: u64, at: &Moment) -> Holder {
        let holder = Holder {
            permits,
            fence: self.next_number(at),
            ends: end_of(at.ms(), lease_ms),
        };
        self.exists = true;
        self.holders.insert(id.to_owned(), holder.clone());
        holder
    }

    /// Takes back what has ended.
    fn settle(&mut self, at: &Moment) {
        self.holders.retain(|_, holder| holder.lives(at.ms()));
    }

    /// Serves the head of the queue, then the next, while what is free is enough for it. Whether it is the turn of `me`, who is
    /// calling, and enough is free for it.
    fn serve(&mut self, me: Option<(&str, u32)>, at: &Moment, told: &mut Vec<Told>) -> bool {
        while let Some(head) = self.queue.first().cloned() {
            if let Some((id, permits)) = me
                && head.id == id
            {
                return self.fits(permits);
            }
            let something_is_free = self.in_use() < self.limit;
            let silent = !head.inbox.is_empty() && !(at.listens)(channel(&head.inbox));
            let (id, inbox) = (head.id.clone(), head.inbox.clone());
            if head.patience_until <= at.ms() || something_is_free && silent {
                self.leave(&id);
            } else if head.permits > self.limit {
                self.leave(&id);
                told.push(Told::TooMuch { inbox, id });
            } else if inbox.is_empty() || !self.fits(head.permits) {
                return false; // stays at the head, and what is free is kept for it
            } else {
                self.leave(&id);
                let holder = self.grant(&id, head.permits, head.lease_ms, at);
                let ends = time(holder.ends);
                let text = format!(
                    "{id} {} {} {ends} {}",
                    holder.permits,
                    holder.fence,
                    at.ms()
                );
                let text = signed(&inbox, text);
                told.push(Told::Grant { inbox, id, text });
            }
        }
        false
    }

    pub fn acquire(&mut self, ask: &Ask, at: &Moment, told: &mut Vec<Told>) -> Reply {
        let now = at.ms();
        if let Some(holder) = self.holders.get(&ask.id)
            && holder.lives(now)
        {
            let (permits, fence, ends) = (holder.permits, holder.fence, time(holder.ends));
            return words(&[
                &"held",
                &permits,
                &fence,
                &ends,
                &now,
                &self.in_use(),
                &self.limit,
            ]);
        }
        let limit = if self.limit == 0 {
            ask.limit
        } else {
            self.limit
        };
        if limit == 0 {
            return Err("LUAGATE no limit".to_owned());
        }
        if ask.permits.is_some_and(|permits| permits > limit) {
            return Err("LUAGATE permits".to_owned());
        }
        self.limit = limit;
        self.settle(at);

        let waits = ask.wait_ms > 0 && ask.permits.is_some();
        let wanted = ask.permits.unwrap_or(1);
        let is_my_turn = if self.queue.is_empty() {
            self.fits(wanted)
        } else if waits {
            self.stand_in_line(ask, at);
            self.serve(Some((&ask.id, wanted)), at, told)
        } else {
            let my_turn = self.serve(Some((&ask.id, wanted)), at, told);
            if !my_turn && self.place(&ask.id).is_some() {
                self.leave(&ask.id); // a place is given up
                self.serve(None, at, told);
            }
            my_turn || self.queue.is_empty() && self.fits(wanted)
        };

        if is_my_turn {
            self.leave(&ask.id);
            let permits = ask.permits.unwrap_or(limit - self.in_use());
            let holder = self.grant(&ask.id, permits, ask.lease_ms, at);
            self.serve(None, at, told);
            let (fence, ends) = (holder.fence, time(holder.ends));
            return words(&[
                &"granted",
                &permits,
                &fence,
                &ends,
                &now,
                &self.in_use(),
                &limit,
            ]);
        }
        if waits {
            if self.place(&ask.id).is_none() {
                self.stand_in_line(ask, at);
            }
            let place = self.place(&ask.id).unwrap();
            let ticket = self.queue[place].ticket;
            return words(&[
                &"queued",
                &ticket,
                &(place + 1),
                &ANY,
                &self.in_use(),
                &limit,
                &now,
            ]);
        }
        words(&[
            &"denied",
            &ANY,
            &self.in_use(),
            &limit,
            &self.queue.len(),
            &now,
        ])
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
            lease_ms: ask.lease_ms,
            patience_until: at.ms() + ask.wait_ms,
            inbox: ask.inbox.clone(),
        });
        self.queue
            .sort_by(|a, b| (a.ticket, &a.id).cmp(&(b.ticket, &b.id)));
    }

    pub fn release(&mut self, id: &str, keep: u32, at: &Moment, told: &mut Vec<Told>) -> Reply {
        let mut answer = "gone";
        let mut left = 0;
        if let Some(holder) = self.holders.get_mut(id) {
            if !holder.lives(at.ms()) {
                self.holders.remove(id);
            } else if keep > holder.permits {
                return Err("LUAGATE keep".to_owned());
            } else {
                (answer, left) = ("released", keep);
                holder.permits = keep;
                if keep == 0 {
                    self.holders.remove(id);
                }
            }
        } else if self.place(id).is_some() {
            if keep > 0 {
                return Err("LUAGATE keep".to_owned());
            }
            answer = "cancelled";
            self.leave(id);
        }
        self.settle(at);
        self.serve(None, at, told);
        if answer == "released" {
            return words(&[&answer, &left, &self.in_use(), &self.limit]);
        }
        words(&[&answer])
    }

    pub fn refresh(&mut self, id: &str, lease_ms: u64, at: &Moment) -> Reply {
        let now = at.ms();
        match self.holders.get_mut(id) {
            Some(holder) if holder.lives(now) => {
                holder.ends = end_of(now, lease_ms);
                let ends = time(holder.ends);
                words(&[&"refreshed", &holder.permits, &holder.fence, &ends, &now])
            }
            _ => words(&[&"lost", &now]),
        }
    }

    pub fn lookup(&self, id: &str, at: &Moment) -> Reply {
        let now = at.ms();
        if let Some(holder) = self.holders.get(id)
            && holder.lives(now)
        {
            let ends = time(holder.ends);
            return words(&[&"held", &holder.permits, &holder.fence, &ends, &now]);
        }
        match self.place(id) {
            Some(place) if self.queue[place].patience_until > now => {
                words(&[&"queued", &self.queue[place].ticket, &(place + 1), &now])
            }
            _ => words(&[&"gone", &now]),
        }
    }

    /// `expected` `None` sets always.
    pub fn resize(
        &mut self,
        new: u32,
        expected: Option<u32>,
        at: &Moment,
        told: &mut Vec<Told>,
    ) -> Reply {
        let old = self.limit;
        if expected.is_some_and(|expected| expected != old) {
            return words(&[&"unchanged", &old, &self.in_use()]);
        }
        if new == 0 && !self.exists {
            return words(&[&"resized", &0, &0, &0]);
        }
        self.settle(at);
        self.exists = true;
        self.pinned = new > 0;
        if new > 0 {
            self.limit = new;
            for waiter in self.queue.clone() {
                if new < old && waiter.permits > new {
                    self.leave(&waiter.id);
                    let (inbox, id) = (waiter.inbox, waiter.id);
                    told.push(Told::TooMuch { inbox, id });
                }
            }
        }
        self.serve(None, at, told);
        words(&[&"resized", &old, &self.limit, &self.in_use()])
    }

    /// Several mutexes at once, all or none.
    pub fn try_lock_all(
        locks: &mut [&mut Model],
        id: &str,
        lease_ms: u64,
        at: &Moment,
        told: &mut Vec<Told>,
    ) -> Reply {
        let now = at.ms();
        let held: Vec<bool> = locks
            .iter()
            .map(|lock| lock.holders.get(id).is_some_and(|holder| holder.lives(now)))
            .collect();
        let mut in_the_way = None;
        for (place, lock) in locks.iter_mut().enumerate() {
            if held[place] {
                continue;
            }
            let stored = lock.limit;
            lock.limit = lock.limit.max(1);
            lock.settle(at);
            lock.leave(id);
            lock.serve(None, at, told);
            if !(lock.queue.is_empty() && lock.fits(1)) {
                in_the_way = in_the_way.or(Some(place));
            } else {
                lock.limit = stored; // until a grant stores it
            }
        }
        if let Some(place) = in_the_way {
            for (lock, held) in locks.iter_mut().zip(held) {
                if held {
                    lock.holders.remove(id);
                    lock.settle(at);
                    lock.serve(None, at, told);
                }
            }
            let lock = &locks[place];
            let (in_use, waiting) = (lock.in_use(), lock.queue.len());
            return words(&[
                &"denied",
                &(place + 1),
                &ANY,
                &in_use,
                &lock.limit,
                &waiting,
                &now,
            ]);
        }
        let mut reply = vec![
            if held.iter().all(|held| *held) {
                "held"
            } else {
                "granted"
            }
            .to_owned(),
            now.to_string(),
            "[".to_owned(),
        ];
        for lock in locks {
            lock.limit = lock.limit.max(1);
            let holder = match lock.holders.get(id) {
                Some(holder) => holder.clone(),
                None => lock.grant(id, 1, lease_ms, at),
            };
            let ends = time(holder.ends);
            reply.extend([
                "[".to_owned(),
                holder.fence.to_string(),
                ends,
                "]".to_owned(),
            ]);
        }
        reply.push("]".to_owned());
        Ok(reply)
    }

    /// What `inspect` says of all holders and waiters, ended ones left out.
    pub fn inspect(&self, at: &Moment) -> Vec<String> {
        let now = at.ms();
        let holders = self.holders.iter().filter(|(_, holder)| holder.lives(now));
        let mut holders: Vec<_> = holders.collect();
        holders.sort_by_key(|(id, holder)| (holder.ends.unwrap_or(u64::MAX), (*id).clone()));
        let waiters = self
            .queue
            .iter()
            .filter(|waiter| waiter.patience_until > now);
        let waiters: Vec<_> = waiters.collect();
        let in_use: u32 = holders.iter().map(|(_, holder)| holder.permits).sum();
        let mut list = vec![
            self.limit.to_string(),
            u32::from(self.pinned).to_string(),
            in_use.to_string(),
            holders.len().to_string(),
            waiters.len().to_string(),
            self.last.to_string(),
            now.to_string(),
            "[".to_owned(),
        ];
        for (id, holder) in holders {
            let (permits, fence) = (holder.permits.to_string(), holder.fence.to_string());
            list.extend([
                "[".to_owned(),
                id.clone(),
                permits,
                fence,
                time(holder.ends),
                "]".to_owned(),
            ]);
        }
        list.extend(["]".to_owned(), "[".to_owned()]);
        for waiter in waiters {
            let row = [
                u64::from(waiter.permits),
                waiter.ticket,
                waiter.patience_until,
            ];
            list.extend(["[".to_owned(), waiter.id.clone()]);
            list.extend(row.map(|number| number.to_string()));
            list.push("]".to_owned());
        }
        list.push("]".to_owned());
        list
    }
}
