//! Properties that must hold in every situation, and situations that must be possible.

use super::{ANYTHING_ELSE, RULES, WAITING, World};
use crate::model::is_cooling;
use crate::scripts::words_of;
use crate::situation::{Setting, Situation};
use stateright::Property;

/// A promise with the name of its rule.
macro_rules! always {
    ($rule:literal) => {
        Property::always($rule, |_, situation: &Situation| {
            let violation = situation.violation.as_ref();
            violation.is_none_or(|violation| violation.rule != $rule)
        })
    };
}

impl World {
    pub(super) fn promises(&self) -> Vec<Property<World>> {
        let mut properties = vec![
            always!("limit"),
            always!("minimum hold"),
            always!("line"),
            always!("order"),
            always!("fence"),
            always!("same id"),
            always!("belief"),
            always!("lease"),
            always!("reply"),
            always!("messages"),
            always!("state"),
            always!("all or nothing"),
            always!("wake-up"),
            always!("nothing left behind"),
            Property::always(ANYTHING_ELSE, |_, situation: &Situation| {
                let rule = situation.violation.as_ref().map(|violation| violation.rule);
                rule.is_none_or(|rule| RULES.contains(&rule))
            }),
            Property::always(WAITING, |world: &World, situation: &Situation| {
                situation.violation.is_some() || world.is_served(situation)
            }),
        ];
        properties.extend(sometimes(&self.setting));
        properties
    }
}

/// Situations that must be possible. They show that the promises do not hold only because nothing happens.
fn sometimes(setting: &Setting) -> Vec<Property<World>> {
    let mut list = always_possible();
    list.extend(of_the_line(setting));
    list.extend(of_faults(setting));
    list.extend(of_permits(setting));
    list
}

fn replied(situation: &Situation, word: &str) -> bool {
    situation.parties.iter().any(|party| {
        let replies = party.client.flights.iter();
        let mut replies = replies.flat_map(|flight| flight.replies.iter().flatten());
        replies.any(|reply| words_of(reply).is_ok_and(|words| words[0] == word))
    })
}

/// Situations that are possible in each setting.
fn always_possible() -> Vec<Property<World>> {
    vec![
        Property::sometimes(
            "all clients are done and nothing is left",
            |world: &World, situation: &Situation| {
                let model = &situation.sealed.kept.gate.model;
                let all_asked = situation.parties.iter().all(|party| party.asked == world.setting.asks);
                all_asked && situation.is_at_rest() && model.holders.is_empty() && model.queue.is_empty()
            },
        ),
        Property::sometimes("a lease ends before the permit is released", |_, situation: &Situation| {
            replied(situation, "gone")
        }),
    ]
}

/// Situations of waiters and of callers that do not wait.
fn of_the_line(setting: &Setting) -> Vec<Property<World>> {
    let mut list = Vec::new();
    if setting.wants.iter().any(|want| want.inbox && want.wait != Some(0)) {
        list.push(Property::sometimes("a waiter receives a grant message", |_, situation: &Situation| {
            let parties = situation.parties.iter();
            let mut mail = parties.flat_map(|party| &party.client.mail);
            mail.any(|text| text.split(' ').nth(2) != Some("0"))
        }));
    }
    if setting.clients > 2 {
        list.push(Property::sometimes("two clients wait in line", |_, situation: &Situation| {
            situation.sealed.kept.gate.model.queue.len() > 1
        }));
    }
    if setting.wants.iter().any(|want| want.max_waiting > 0) {
        list.push(Property::sometimes("the line is full", |_, situation: &Situation| {
            replied(situation, "denied")
        }));
    }
    if setting.wants.iter().any(|want| want.wait == Some(0) && want.permits <= setting.limit) {
        list.push(Property::sometimes("a client is denied", |_, situation: &Situation| {
            replied(situation, "denied")
        }));
    }
    list
}

/// Consequences of a broken connection or a missing reply.
fn of_faults(setting: &Setting) -> Vec<Property<World>> {
    let mut list = Vec::new();
    if setting.faults > 0 {
        list.push(Property::sometimes(
            "a repeated call only confirms its grant",
            |_, situation: &Situation| replied(situation, "held"),
        ));
        list.push(Property::sometimes(
            "a late call is granted a permit that no client wants",
            |_, situation: &Situation| {
                let kept = &situation.sealed.kept;
                let mut holders = kept.gate.model.holders.iter();
                let is_held = holders.any(|(id, holder)| holder.lives(kept.now()) && !is_cooling(id));
                is_held && situation.parties.iter().all(|party| party.is_at_rest())
            },
        ));
    }
    list
}

/// Situations of permits.
fn of_permits(setting: &Setting) -> Vec<Property<World>> {
    let mut list = Vec::new();
    if setting.renewals > 0 {
        list.push(Property::sometimes("a refresh comes too late", |_, situation: &Situation| {
            replied(situation, "lost")
        }));
    }
    if setting.wants.iter().any(|want| want.at_least > 0) {
        list.push(Property::sometimes(
            "permits cool down while a client waits",
            |_, situation: &Situation| {
                let kept = &situation.sealed.kept;
                let mut holders = kept.gate.model.holders.iter();
                let cools = holders.any(|(id, holder)| holder.lives(kept.now()) && is_cooling(id));
                cools && !kept.gate.model.queue.is_empty()
            },
        ));
    }
    if setting.limit > 1 {
        list.push(Property::sometimes("two clients hold at once", |_, situation: &Situation| {
            let parties = situation.parties.iter();
            let had = parties.filter(|party| !party.client.permits.is_empty());
            had.count() > 1
        }));
    }
    if setting.wants.iter().any(|want| want.permits > setting.limit) {
        list.push(Property::sometimes("a call asks for more than the limit", |_, situation: &Situation| {
            replied(situation, "above_limit")
        }));
    }
    list
}
