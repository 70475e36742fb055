//! What a semaphore is, written for reading: who holds, who waits, and what each call does. It forgets nothing, is never
//! full, and knows nothing of keys. The scripts have to answer as it does.

use crate::scripts::Reply;
use std::collections::BTreeMap;

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
    Hint { inbox: String, id: String },
}

/// What a call does beside its reply.
#[derive(Debug, Default)]
pub struct Effects {
    pub told: Vec<Told>,
    /// Until when the waiter lives that stays at the head.
    head_until: End,
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

    /// Who holds, whose lease ends first first.
    fn by_end(&self) -> Vec<(u64, String)> {
        let holders = self.holders.iter();
        let mut ends: Vec<_> = holders
            .map(|(id, holder)| (holder.ends.unwrap_or(u64::MAX), id.clone()))
            .collect();
        ends.sort();
        ends
    }

    /// Takes back what has ended.
    fn settle(&mut self, at: &Moment) {
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
        let head = effects
            .head_until
            .map(|end| end.saturating_sub(at.ms()).max(1));
        time(self.end_of(1, at).or(head))
    }

    /// When a waiter at this place should ask again without a message. One that asked before, and has only dead ones in front,
    /// watches as the head does.
    fn look_again(
        &self,
        place: usize,
        asked_before: bool,
        wait_ms: u64,
        at: &Moment,
        effects: &Effects,
    ) -> u64 {
        let third = (wait_ms / 3).max(1);
        if effects.stopped {
            return 1;
        }
        let mut in_front = self.queue[..place].iter();
        let listens =
            |waiter: &Waiter| waiter.inbox.is_empty() || (at.listens)(channel(&waiter.inbox));
        let is_head = asked_before && place < 10 && !in_front.any(listens);
        let watch = if is_head { 1 } else { place + 1 };
        self.end_of(watch, at).unwrap_or(third).min(third)
    }

    /// Serves the head of the queue, then the next, while what is free is enough for it. Whether it is the turn of `me`, who is
    /// calling, and enough is free for it.
    fn serve(&mut self, me: Option<(&str, u32)>, at: &Moment, effects: &mut Effects) -> bool {
        for _ in 0..BATCH {
            let Some(head) = self.queue.first().cloned() else {
                return false;
            };
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
                effects.told.push(Told::Hint { inbox, id });
            } else if inbox.is_empty() || !self.fits(head.permits) {
                effects.head_until = Some(head.patience_until);
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

    pub fn acquire(&mut self, ask: &Ask, at: &Moment, effects: &mut Effects) -> Reply {
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
        self.holders.remove(&ask.id); // what its ended lease still occupies
        self.settle(at);

        let waits = ask.wait_ms > 0 && ask.permits.is_some();
        effects.caller = self.place(&ask.id).map(|place| self.queue[place].clone());
        let asked_before = effects.caller.is_some();
        let wanted = ask.permits.unwrap_or(1);
        let is_my_turn = if self.queue.is_empty() {
            self.fits(wanted)
        } else if waits {
            self.stand_in_line(ask, at);
            self.serve(Some((&ask.id, wanted)), at, effects)
        } else {
            let my_turn = self.serve(Some((&ask.id, wanted)), at, effects);
            if !my_turn && self.place(&ask.id).is_some() {
                self.leave(&ask.id); // a place is given up
                self.serve(None, at, effects);
            }
            my_turn || self.queue.is_empty() && self.fits(wanted)
        };

        if is_my_turn {
            self.leave(&ask.id);
            let permits = ask.permits.unwrap_or(limit - self.in_use());
            let holder = self.grant(&ask.id, permits, ask.lease_ms, at);
            self.serve(None, at, effects);
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
            let retry_after = self.look_again(place, asked_before, ask.wait_ms, at, effects);
            let (position, in_use) = (place + 1, self.in_use());
            return words(&[
                &"queued",
                &ticket,
                &position,
                &retry_after,
                &in_use,
                &limit,
                &now,
            ]);
        }
        let (retry_after, in_use) = (self.ask_again(at, effects), self.in_use());
        words(&[
            &"denied",
            &retry_after,
            &in_use,
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

    pub fn release(&mut self, id: &str, keep: u32, at: &Moment, effects: &mut Effects) -> Reply {
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
        self.serve(None, at, effects);
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
        effects: &mut Effects,
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
            for waiter in self.queue.clone().into_iter().take(BATCH) {
                if new < old && waiter.permits > new {
                    self.leave(&waiter.id);
                    let (inbox, id) = (waiter.inbox, waiter.id);
                    effects.told.push(Told::Hint { inbox, id });
                }
            }
        }
        self.serve(None, at, effects);
        words(&[&"resized", &old, &self.limit, &self.in_use()])
    }

    /// Several mutexes at once, all or none.
    pub fn try_lock_all(
        locks: &mut [&mut Model],
        id: &str,
        lease_ms: u64,
        at: &Moment,
        effects: &mut Effects,
    ) -> Reply {
        let now = at.ms();
        let held: Vec<bool> = locks
            .iter()
            .map(|lock| lock.holders.get(id).is_some_and(|holder| holder.lives(now)))
            .collect();
        let mut own: Vec<Effects> = held.iter().map(|_| Effects::default()).collect();
        let mut in_the_way = None;
        for (place, lock) in locks.iter_mut().enumerate() {
            if held[place] {
                continue;
            }
            let stored = lock.limit;
            lock.limit = lock.limit.max(1);
            lock.holders.remove(id); // what its ended lease still occupies
            lock.settle(at);
            lock.leave(id);
            lock.serve(None, at, &mut own[place]);
            effects.told.append(&mut own[place].told);
            if !(lock.queue.is_empty() && lock.fits(1)) {
                in_the_way = in_the_way.or(Some(place));
            } else {
                lock.limit = stored; // until a grant stores it
            }
        }
        if let Some(way) = in_the_way {
            for (place, lock) in locks.iter_mut().enumerate() {
                if held[place] {
                    lock.holders.remove(id);
                    lock.settle(at);
                    lock.serve(None, at, &mut own[place]);
                    effects.told.append(&mut own[place].told);
                }
            }
            let lock = &locks[way];
            let (retry_after, in_use) = (lock.ask_again(at, &own[way]), lock.in_use());
            return words(&[
                &"denied",
                &(way + 1),
                &retry_after,
                &in_use,
                &lock.limit,
                &lock.queue.len(),
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
