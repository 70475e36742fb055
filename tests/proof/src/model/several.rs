//! Permits of several semaphores at once.

use super::{Effects, Model, Moment, time, words};
use crate::scripts::Reply;

/// The request to one of several semaphores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AskOne {
    pub permits: u32,
    pub limit: u32,
    pub lease_ms: u64,
    pub at_least_ms: u64,
}

fn row(numbers: &[&dyn ToString]) -> Vec<String> {
    let numbers = numbers.iter().map(|number| number.to_string());
    ["[".to_owned()].into_iter().chain(numbers).chain(["]".to_owned()]).collect()
}

impl Model {
    /// Acquires all of several semaphores or none. What the id held before it keeps.
    pub fn try_acquire_several(
        models: &mut [&mut Model],
        id: &str,
        asked: &[AskOne],
        at: &Moment,
        effects: &mut Effects,
    ) -> Reply {
        let now = at.ms();
        let in_force =
            |(model, ask): (&&mut Model, &AskOne)| if model.limit == 0 { ask.limit } else { model.limit };
        let limits: Vec<u32> = models.iter().zip(asked).map(in_force).collect();
        if limits.contains(&0) {
            return Err("LUAGATE no limit".to_owned());
        }
        let held = models.iter().map(|model| model.holders.get(id).is_some_and(|holder| holder.lives(now)));
        let held: Vec<bool> = held.collect();
        let places = || (0..asked.len()).filter(|place| !held[*place]);
        let above = places().find(|place| asked[*place].permits > limits[*place]);
        // The first place that denies, in order, and when to ask again there.
        let mut blocked = None;
        for place in places() {
            models[place].leave(id);
            let own = models[place].advance(limits[place], Some(id), at, effects);
            let can_have = models[place].could_grant(asked[place].permits, limits[place]);
            if !can_have && blocked.is_none() {
                blocked = Some((place, models[place].ask_again(at, &own)));
            }
        }
        let still_held = held.iter().filter(|held| **held).count();
        if let Some(place) = above {
            return words(&[&"above_limit", &(place + 1), &limits[place], &now, &still_held]);
        }
        if let Some((place, ask_again)) = blocked {
            let head =
                ["denied".to_owned(), (place + 1).to_string(), ask_again, now.to_string(), "[".to_owned()];
            let usages = models.iter().zip(&limits);
            let usages = usages.flat_map(|(model, limit)| row(&[&model.in_use(), limit, &model.queue.len()]));
            return Ok(head
                .into_iter()
                .chain(usages)
                .chain(["]".to_owned(), still_held.to_string()])
                .collect());
        }
        for place in places() {
            let (model, ask) = (&mut models[place], &asked[place]);
            model.advance(limits[place], None, at, effects);
            model.limit = limits[place];
            model.grant(id, ask.permits, ask.lease_ms, ask.at_least_ms, at);
        }
        let word = if held.iter().all(|held| *held) { "held" } else { "granted" };
        let grants = models.iter().zip(&limits).flat_map(|(model, limit)| {
            let holder = &model.holders[id];
            row(&[&holder.permits, &holder.fence, &time(holder.ends), &model.in_use(), limit])
        });
        let head = [word.to_owned(), now.to_string(), "[".to_owned()];
        Ok(head.into_iter().chain(grants).chain(["]".to_owned()]).collect())
    }

    /// Takes back ended leases, also that of this id, and serves the line, under this limit. Only a grant to
    /// the caller stores the limit.
    fn advance(&mut self, limit: u32, own: Option<&str>, at: &Moment, effects: &mut Effects) -> Effects {
        let (stored, mut done) = (self.limit, Effects::default());
        self.limit = limit;
        self.expire(own, at);
        self.serve(None, at, &mut done);
        self.limit = stored;
        effects.reported.append(&mut done.reported);
        done
    }

    fn could_grant(&self, permits: u32, limit: u32) -> bool {
        self.queue.is_empty() && self.in_use().saturating_add(permits) <= limit
    }
}
