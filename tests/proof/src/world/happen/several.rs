//! Callers that want permits of several semaphores: all at once, or one after the other in line.

use crate::action::Action;
use crate::client::{Outcome, Patience, Want};
use crate::protocol::keeper::Number;
use crate::protocol::lease::LeaseOptions;
use crate::world::{GROUP, World};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A caller that waits for one semaphore after the other, as `src/several.rs` does.
pub(in crate::world) struct Group {
    waits_for: String,
    rest: VecDeque<Want>,
    permits: Vec<Number>,
    until: Option<Instant>,
}

impl World {
    pub(super) fn want_all(&mut self, name: usize, action: &Action) {
        let Action::WantAll { asked, renewed, patience, max_waiting, head_start_ms, .. } = action else {
            return;
        };
        if !self.hosts[name].client.is_alive {
            return;
        }
        let at_once = *patience == Patience::None;
        let shared = self.hosts[name].client.next_number();
        let mut wants = VecDeque::new();
        for (gate, ask) in GROUP.zip(asked) {
            let number = if at_once { shared } else { self.hosts[name].client.next_number() };
            let is_mutex = World::is_mutex(gate);
            // Held permits are renewed while the caller waits for the next one.
            let renewed = ask.lease_ms >= 30 && (*renewed || !at_once);
            wants.push_back(Want {
                keys: self.gates[gate].keys.clone(),
                id: format!("c{name}/{number}"),
                permits: Some(if is_mutex { 1 } else { ask.permits }),
                limit: if is_mutex { 1 } else { ask.limit },
                strict: false,
                max_waiting: *max_waiting,
                head_start_ms: *head_start_ms,
                lease: LeaseOptions {
                    lease_ms: ask.lease_ms,
                    renewed,
                    own_id: false,
                    at_least_ms: ask.at_least_ms,
                },
                patience: *patience,
                on_lost: false,
            });
        }
        if at_once {
            for (gate, want) in GROUP.zip(&wants) {
                self.tell(|| format!("c{name} wants at once {want}"));
                self.note_id(name, gate, &want.id);
            }
            return self.with(name, |client, now| client.try_all(wants.into(), now));
        }
        let until = match patience {
            Patience::For(ms) => {
                let now = self.hosts[name].now(self.mono).instant();
                now.checked_add(Duration::from_millis(*ms))
            }
            _ => None,
        };
        let group = Group { waits_for: String::new(), rest: wants, permits: Vec::new(), until };
        self.hosts[name].groups.push(group);
        let last = self.hosts[name].groups.len() - 1;
        self.want_next(name, last);
    }

    /// Waits for the next semaphore. Once the caller has all of them, it refreshes them. If its time is over,
    /// it releases them.
    fn want_next(&mut self, name: usize, place: usize) {
        let now = self.hosts[name].now(self.mono).instant();
        let group = &mut self.hosts[name].groups[place];
        let left = group.until.map(|until| until.saturating_duration_since(now).as_millis() as u64);
        let Some(mut want) = group.rest.pop_front() else {
            let group = self.hosts[name].groups.remove(place);
            return self.with(name, |client, now| {
                group.permits.iter().for_each(|number| client.refresh(*number, None, now));
            });
        };
        if left == Some(0) && !group.permits.is_empty() {
            return self.give_up_group(name, place);
        }
        group.waits_for.clone_from(&want.id);
        want.patience = left.map_or(Patience::Forever, Patience::For);
        self.begin_want(name, want);
    }

    fn give_up_group(&mut self, name: usize, place: usize) {
        let group = self.hosts[name].groups.remove(place);
        self.with(name, |client, now| {
            for number in group.permits {
                if client.permits.get(&number).is_some_and(|permit| permit.is_had) {
                    client.drop_permit(number, now);
                }
            }
        });
    }

    /// Continues a group after an outcome of its caller.
    pub(in crate::world) fn go_on_with_group(&mut self, name: usize, outcome: &Outcome) {
        let host = &self.hosts[name];
        let id = match outcome {
            Outcome::Granted(number) => host.client.permits.get(number).map(|permit| &permit.identity.id),
            Outcome::Nothing { id, .. } => Some(id),
            Outcome::Opened { .. } => None,
        };
        let mut groups = host.groups.iter();
        let Some(place) = id.and_then(|id| groups.position(|group| group.waits_for == *id)) else {
            return;
        };
        match outcome {
            Outcome::Granted(number) => {
                self.hosts[name].groups[place].permits.push(*number);
                self.want_next(name, place);
            }
            _ => self.give_up_group(name, place),
        }
    }
}
