//! The effect of each call on the model, and its reply.

use super::{Ask, BATCH, Effects, Model, Moment, Reported, Waiter, end_of, is_cooling, time, words};
use crate::scripts::Reply;

impl Model {
    pub fn acquire(&mut self, ask: &Ask, at: &Moment, effects: &mut Effects) -> Reply {
        let now = at.ms();
        let ask = &Ask { ticket: self.ticket_of(ask, at.micros), ..ask.clone() };
        if let Some(holder) = self.holders.get(&ask.id)
            && holder.lives(now)
        {
            let (permits, fence, ends) = (holder.permits, holder.fence, time(holder.ends));
            return words(&[&"held", &permits, &fence, &ends, &now, &self.in_use(), &self.limit]);
        }
        let limit = if self.limit == 0 { ask.limit } else { self.limit };
        if limit == 0 {
            return Err("LUAGATE no limit".to_owned());
        }
        self.expire(Some(&ask.id), at);
        if ask.permits.is_some_and(|permits| permits > limit) {
            self.leave(&ask.id);
            self.serve(None, at, effects);
            return words(&[&"above_limit", &limit, &now]);
        }
        self.limit = limit;

        let waits = ask.wait_ms > 0 && ask.permits.is_some();
        let place = self.place(&ask.id);
        effects.caller = place.filter(|_| waits).map(|place| self.queue[place].clone());
        let is_new = place.is_none() && ask.ticket == 0;
        let early = (is_new && ask.head_start_ms > 0).then(|| self.early_ticket(ask, at.micros));
        let behind =
            early.map_or(0, |early| self.queue.iter().filter(|waiter| waiter.ticket > early).count());
        let is_my_turn = self.comes_to_turn(ask, waits, behind, at, effects);
        if is_my_turn {
            self.leave(&ask.id);
            let permits = ask.permits.unwrap_or(limit - self.in_use());
            let holder = self.grant(&ask.id, permits, ask.lease_ms, ask.at_least_ms, at);
            if !effects.stopped {
                self.serve(None, at, effects);
            }
            let (fence, ends) = (holder.fence, time(holder.ends));
            return words(&[&"granted", &permits, &fence, &ends, &now, &self.in_use(), &limit]);
        }
        if waits && (!is_new || self.has_room(ask.max_waiting, behind, at, effects)) {
            if self.place(&ask.id).is_none() {
                self.stand_in_line(ask, early, at);
            }
            let place = self.place(&ask.id).unwrap();
            let ticket = self.queue[place].ticket;
            // In a new place it counts waiters with the same ticket as ahead of it.
            let ahead = if is_new { self.queue.len() - 1 - behind } else { place };
            let retry_after = self.look_again(ahead, ask, at, effects);
            let (position, in_use) = (ahead + 1, self.in_use());
            return words(&[&"queued", &ticket, &position, &retry_after, &in_use, &limit, &now]);
        }
        let next_expiry = match self.ask_again(at, effects) {
            _ if waits && self.end_of(1, at).is_none() => "*".to_owned(), // one that became permanent keeps its old end
            exact if waits => format!("<={exact}"),                       // so does a refreshed one
            exact => exact,
        };
        let in_use = self.in_use();
        words(&[&"denied", &next_expiry, &in_use, &limit, &self.queue.len(), &now])
    }

    /// Whether it is the caller's turn after those ahead were served.
    fn comes_to_turn(
        &mut self,
        ask: &Ask,
        waits: bool,
        behind: usize,
        at: &Moment,
        effects: &mut Effects,
    ) -> bool {
        let wanted = ask.permits.unwrap_or(1);
        if self.queue.is_empty() {
            return self.fits(wanted);
        }
        if waits && (self.place(&ask.id).is_some() || ask.ticket > 0) {
            self.stand_in_line(ask, None, at);
            let my_turn = self.serve(Some((&ask.id, wanted)), at, effects);
            if !my_turn && effects.left == BATCH && !effects.stopped {
                self.serve(Some((&ask.id, wanted)), at, effects); // it was the last one within the bound
            }
            return my_turn;
        }
        // The caller does not wait, or is not in line yet.
        let my_turn = self.serve_before(behind, Some((&ask.id, wanted)), at, effects);
        if behind > 0 && self.queue.len() == behind {
            if !self.fits(wanted) && !waits && !effects.stopped {
                self.serve(None, at, effects);
                return false;
            }
            return self.fits(wanted);
        }
        if !my_turn && self.place(&ask.id).is_some() {
            self.leave(&ask.id); // it leaves the line, also if it comes first after as many as one call serves
            if !effects.stopped {
                self.serve(None, at, effects);
            }
            return false;
        }
        my_turn || self.queue.is_empty() && self.fits(wanted)
    }

    /// `fence` 0: whatever grant the id has.
    pub fn release(&mut self, id: &str, keep: u32, fence: u64, at: &Moment, effects: &mut Effects) -> Reply {
        let (mut answer, mut left, mut ended) = ("gone", 0, None);
        let holder = self.holders.get(id).map(|holder| holder.fence);
        let ticket = self.place(id).map(|place| self.queue[place].ticket);
        let is_other = fence > 0 && holder.or(ticket) != Some(fence);
        if is_other {
            // The grant belongs to a later call with the same id.
        } else if let Some(holder) = self.holders.get(id) {
            if !holder.lives(at.ms()) && keep > 0 {
                ended = Some(id); // one of the leases that this call takes back
            } else if !holder.lives(at.ms()) {
                self.holders.remove(id);
            } else if keep > holder.permits {
                return Err("LUAGATE keep".to_owned());
            } else {
                (answer, left) = ("released", keep);
                self.give_back(id, keep, at);
            }
        } else if let Some(place) = self.place(id) {
            if keep > 0 {
                return Err("LUAGATE keep".to_owned());
            }
            answer = "cancelled";
            let Waiter { id, inbox, .. } = self.queue.remove(place);
            effects.reported.push(Reported::Revoked { inbox, id });
        }
        self.expire(ended, at);
        self.serve(None, at, effects);
        if answer == "released" {
            return words(&[&answer, &left, &self.in_use(), &self.limit]);
        }
        words(&[&answer])
    }

    pub fn refresh(&mut self, id: &str, lease_ms: u64, fence: u64, at: &Moment) -> Reply {
        let now = at.ms();
        match self.holders.get_mut(id) {
            Some(holder) if holder.lives(now) && (fence == 0 || fence == holder.fence) => {
                holder.ends = end_of(now, lease_ms).map(|end| end.max(holder.least_end));
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

    /// `expected` `None`: sets it unconditionally.
    pub fn resize(&mut self, new: u32, expected: Option<u32>, at: &Moment, effects: &mut Effects) -> Reply {
        let old = self.limit;
        if expected.is_some_and(|expected| expected != old) {
            return words(&[&"unchanged", &old, &self.in_use()]);
        }
        if new == 0 && !self.exists {
            return words(&[&"resized", &0, &0, &0]);
        }
        self.expire(None, at);
        self.exists = true;
        self.pinned = new > 0;
        if new == 0 && self.holders.is_empty() && self.queue.is_empty() {
            self.limit = 0; // forgotten
        }
        if new > 0 {
            self.limit = new;
            for waiter in self.queue.clone().into_iter().take(BATCH) {
                if new < old && waiter.permits > new {
                    self.leave(&waiter.id);
                    let (inbox, id) = (waiter.inbox, waiter.id);
                    effects.reported.push(Reported::Hint { inbox, id });
                }
            }
        }
        self.serve(None, at, effects);
        words(&[&"resized", &old, &self.limit, &self.in_use()])
    }

    /// The reply of `inspect`: all holders and waiters, except expired ones.
    pub fn inspect(&self, at: &Moment) -> Vec<String> {
        let now = at.ms();
        let holders = self.holders.iter().filter(|(_, holder)| holder.lives(now));
        let mut holders: Vec<_> = holders.collect();
        holders.sort_by_key(|(id, holder)| (holder.ends.unwrap_or(u64::MAX), (*id).clone()));
        let waiters = self.queue.iter().filter(|waiter| waiter.patience_until > now);
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
            let cooling_down = u32::from(is_cooling(id)).to_string();
            let id = id.split(' ').next().unwrap_or_default().to_owned();
            list.extend([
                "[".to_owned(),
                id,
                permits,
                fence,
                time(holder.ends),
                cooling_down,
                "]".to_owned(),
            ]);
        }
        list.extend(["]".to_owned(), "[".to_owned()]);
        for waiter in waiters {
            let row = [u64::from(waiter.permits), waiter.ticket, waiter.patience_until];
            list.extend(["[".to_owned(), waiter.id.clone()]);
            list.extend(row.map(|number| number.to_string()));
            list.push("]".to_owned());
        }
        list.push("]".to_owned());
        list
    }
}
