//! Model checking of the scripts' own text with [stateright](https://docs.rs/stateright): everything that three
//! clients can do with one semaphore, in every order, within the bounds of a [`Setting`].
//!
//! **Covered.** Each client is the library's: the waiter, its mailbox and inbox, the keeper and the pending releases. It
//! asks at once or in line, with weights of 1 and 2, for leases of one or two ticks, for as long as it takes or until a
//! deadline; hears of its grant, or only asks again; refreshes; gives back all or some. A connection breaks and the call is
//! sent again, an answer does not come in time, a call cannot be sent, a message is lost, a wait is cancelled, a client
//! dies and its subscription with it; what was sent may be carried out later, or never. The server carries out calls, and
//! time goes by, at any moment in between. Whoever asks, waits, or is idle may do so for ever: what is bounded is how often
//! each client wants something and refreshes, how many things go wrong in one story, and how many ticks a call or a client
//! is late. Within these bounds nothing is left out: all situations are explored, not up to a depth.
//!
//! **Not covered.** Time goes by in ticks of 5 s, the longest sleep of a waiter: what a client plans in between is done at
//! the next tick. Leases are whole ticks, and no script takes any time, so that what happens within one millisecond is left
//! to the simulation; so are renewals, own ids, strict limits, forged messages, lost keys, restarts, steps of clocks, full
//! memory, resizing, subscriptions that drop while their client lives, latches, and more clients than three. Messages to
//! one client come in their order.
//!
//! **Checked** in every situation are the invariants, one property each (see [`RULES`]). *Waiting* is a promise of
//! every situation too: if from here on nothing goes wrong, and nobody gives anything back, each waiter is served
//! within a number of ticks. That other properties are not true for want of anything happening is shown by some that
//! have to be found.

use crate::carrier::Carrier;
use crate::client::Patience;
use crate::client::flights::Flight;
use crate::scripts::{Scripts, words_of};
use crate::situation::{Event, Setting, Situation, TICK, Want};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What is never broken.
pub const RULES: [&str; 12] = [
    "limit",
    "order",
    "fence",
    "same id",
    "belief",
    "lease",
    "reply",
    "messages",
    "state",
    "all or nothing",
    "wake-up",
    "nothing left behind",
];

const WAITING: &str = "waiting";
const ANYTHING_ELSE: &str = "anything else";

/// How soon every waiter is served from a situation on, in ticks, once all is calm: remembered in one of so many maps.
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<u64, u64>>;

/// All that can happen in a setting.
#[derive(Clone)]
pub struct World {
    setting: Setting,
    carrier: Carrier,
    served: Arc<Vec<Shard>>,
}

/// How an exploration ended.
#[derive(Debug)]
pub struct Explored {
    pub unique: usize,
    pub generated: usize,
    pub depth: usize,
    /// The most calm ticks until every waiter was served.
    pub longest_wait: u64,
    pub took: Duration,
    /// What has to be possible, and was not found.
    pub missing: Vec<&'static str>,
    pub failure: Option<Failure>,
}

#[derive(Debug)]
pub struct Failure {
    pub rule: &'static str,
    pub story: String,
}

/// Explores everything that can happen; stops at the first promise that is broken, of which `story` tells.
pub fn explore<M>(model: &M, threads: usize, story: impl Fn(&'static str, Vec<M::Action>) -> String) -> Explored
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::hash::Hash + Send + Sync + 'static,
    M::Action: Clone + PartialEq,
{
    let begun = Instant::now();
    let checker = model.clone().checker().threads(threads);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let found = checker.discoveries();
    let failed = model
        .properties()
        .into_iter()
        .find(|property| property.expectation == Expectation::Always && found.contains_key(property.name));
    let failure = failed.map(|property| Failure {
        rule: property.name,
        story: story(property.name, found[property.name].clone().into_actions()),
    });
    let sometimes = model.properties().into_iter();
    let missing = sometimes
        .filter(|property| property.expectation == Expectation::Sometimes)
        .map(|property| property.name)
        .filter(|name| !found.contains_key(name));
    Explored {
        unique: checker.unique_state_count(),
        generated: checker.state_count(),
        depth: checker.max_depth(),
        longest_wait: 0,
        took: begun.elapsed(),
        missing: missing.collect(),
        failure,
    }
}

impl Explored {
    pub fn is_broken(&self) -> bool {
        self.failure.is_some() || !self.missing.is_empty()
    }
}

/// Settings that are explored in a second.
pub fn small() -> Vec<Setting> {
    let want = Want { permits: 1, lease: 1, wait: None, inbox: true };
    let fault = Setting {
        name: "two clients that are late, with a fault",
        clients: 2,
        limit: 1,
        wants: vec![want],
        asks: 1,
        opened: true,
        renewals: 0,
        faults: 1,
        delay: 1,
        exact: false,
    };
    let hasty = Want { wait: Some(1), ..want };
    let first =
        Setting { name: "for the first time, with a fault", opened: false, wants: vec![want, hasty], ..fault.clone() };
    vec![fault, first]
}

impl World {
    /// # Errors
    /// When a script is no Lua.
    pub fn new(setting: &Setting, scripts: &Scripts) -> Result<World, String> {
        Ok(World {
            setting: setting.clone(),
            carrier: Carrier::new(scripts)?,
            served: Arc::new((0..SHARDS).map(|_| Shard::default()).collect()),
        })
    }

    /// Explores everything; stops at the first promise that is broken.
    pub fn explore(&self, threads: usize) -> Explored {
        let explored = explore(self, threads, |rule, events| self.story(rule, events));
        Explored { longest_wait: self.longest_wait(), ..explored }
    }

    /// What happened, for reading.
    fn story(&self, rule: &str, events: Vec<Event>) -> String {
        let mut lines = Vec::new();
        let mut situation = Situation::first(&self.setting);
        for event in events {
            situation = self.tell(&situation, event, &mut lines);
        }
        if rule == WAITING {
            lines.push("From here on all is calm:".to_owned());
            let mut calm = 0;
            while let Some(event) = self.calm(&situation)
                && calm < self.patience()
            {
                calm += u64::from(event == Event::Tick);
                situation = self.tell(&situation, event, &mut lines);
            }
        }
        let violation = situation.violation.as_ref();
        let text = violation.map_or("a waiter is not served", |violation| &violation.text);
        format!("{rule} is broken: {text}\n\n{}\n", lines.join("\n"))
    }

    fn tell(&self, situation: &Situation, event: Event, lines: &mut Vec<String>) -> Situation {
        let tick = situation.mono() / TICK;
        lines.push(format!("{tick:3}  {}", situation.describe(event)));
        let mut add = |line| lines.push(line);
        situation.after(&self.setting, &self.carrier, event, Some(&mut add))
    }

    /// What happens next when nothing goes wrong, and nobody does more than wait: whoever holds keeps it to the end of
    /// its lease. Nothing, once nobody waits.
    fn calm(&self, situation: &Situation) -> Option<Event> {
        let mono = situation.mono();
        let parties = || situation.parties.iter().enumerate();
        let next = parties().find_map(|(who, party)| {
            let client = &party.client;
            let mut flights = client.flights.iter();
            if let Some(flight) = flights.next() {
                return Some(match flight.replies {
                    None => Event::Arrive(who, flight.number),
                    Some(_) => Event::Return(who, flight.number),
                });
            }
            if !client.mail.is_empty() {
                return Some(Event::Read(who));
            }
            let due = party.due(mono).next();
            due.map(|(thread, _)| Event::Act(who, thread))
        });
        let waits = parties().any(|(_, party)| party.waiting().is_some());
        next.or(waits.then_some(Event::Tick))
    }

    /// How many calm ticks every waiter has to be served within: whoever can be in front, calls that come late among
    /// them, holds for a whole lease, one after the other, and the end of the last one is noticed a tick later.
    fn patience(&self) -> u64 {
        let ids = (self.setting.clients * self.setting.asks) as u64 + u64::from(self.setting.faults);
        (ids - 1) * self.setting.longest_lease() + 1
    }

    fn longest_wait(&self) -> u64 {
        let shards = self.served.iter().filter_map(|shard| shard.lock().ok());
        let most = shards.filter_map(|shard| shard.values().max().copied());
        most.max().unwrap_or(0)
    }

    /// Whether each waiter is served once all is calm.
    fn is_served(&self, situation: &Situation) -> bool {
        let shard = |print: u64| self.served[print as usize % SHARDS].lock();
        let mut seen = Vec::new();
        let mut situation = situation.clone();
        let mut ticks = 0;
        loop {
            let known = shard(situation.print).ok();
            if let Some(more) = known.and_then(|known| known.get(&situation.print).copied()) {
                ticks += more;
                break;
            }
            seen.push((situation.print, ticks));
            let Some(event) = self.calm(&situation) else {
                break;
            };
            ticks += u64::from(event == Event::Tick);
            let next = situation.after(&self.setting, &self.carrier, event, None);
            if next.violation.is_some() {
                return true; // another property says so
            }
            if ticks > self.patience() || self.is_turned_away(&situation, &next) {
                return false;
            }
            situation = next;
        }
        for (print, then) in seen {
            if let Ok(mut known) = shard(print) {
                known.insert(print, ticks - then);
            }
        }
        ticks <= self.patience()
    }

    /// Whether somebody who waits in line, for what there can be, is so no longer and has nothing.
    fn is_turned_away(&self, then: &Situation, now: &Situation) -> bool {
        then.parties.iter().zip(&now.parties).any(|(then, now)| {
            let client = &now.client;
            let is_served = client.permits.len() > then.client.permits.len();
            let is_over = now.waiting().is_none() && client.is_alive && !is_served;
            then.waiting().is_some_and(|want| {
                let can_be = want.permits <= Some(self.setting.limit);
                want.patience == Patience::Forever && can_be && is_over && !then.is_cancelled()
            })
        })
    }
}

/// A promise by the name of its rule.
macro_rules! always {
    ($rule:literal) => {
        Property::always($rule, |_, situation: &Situation| {
            let violation = situation.violation.as_ref();
            violation.is_none_or(|violation| violation.rule != $rule)
        })
    };
}

impl Model for World {
    type State = Situation;
    type Action = Event;

    fn init_states(&self) -> Vec<Situation> {
        vec![Situation::first(&self.setting)]
    }

    fn actions(&self, situation: &Situation, events: &mut Vec<Event>) {
        situation.events(&self.setting, events);
    }

    fn next_state(&self, situation: &Situation, event: Event) -> Option<Situation> {
        Some(situation.after(&self.setting, &self.carrier, event, None))
    }

    fn properties(&self) -> Vec<Property<World>> {
        let mut properties = vec![
            always!("limit"),
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

/// What has to be possible, so that what never happens is not for want of anything happening.
fn sometimes(setting: &Setting) -> Vec<Property<World>> {
    fn replied(situation: &Situation, word: &str) -> bool {
        situation.parties.iter().any(|party| {
            let replies = party.client.flights.iter();
            let mut replies = replies.flat_map(|flight| flight.replies.iter().flatten());
            replies.any(|reply| words_of(reply).is_ok_and(|words| words[0] == word))
        })
    }
    let mut list: Vec<Property<World>> = vec![
        Property::sometimes("everything comes to rest", |world: &World, situation: &Situation| {
            let model = &situation.sealed.kept.gate.model;
            let all_asked = situation.parties.iter().all(|party| party.asked == world.setting.asks);
            all_asked && situation.is_at_rest() && model.holders.is_empty() && model.queue.is_empty()
        }),
        Property::sometimes("a lease ends before it is given back", |_, situation: &Situation| {
            replied(situation, "gone")
        }),
    ];
    if setting.wants.iter().any(|want| want.inbox && want.wait != Some(0)) {
        list.push(Property::sometimes("a waiter is told of its grant", |_, situation: &Situation| {
            let parties = situation.parties.iter();
            let mut mail = parties.flat_map(|party| &party.client.mail);
            mail.any(|text| text.split(' ').nth(2) != Some("0"))
        }));
    }
    if setting.clients > 2 {
        list.push(Property::sometimes("somebody waits behind another waiter", |_, situation: &Situation| {
            situation.sealed.kept.gate.model.queue.len() > 1
        }));
    }
    if setting.wants.iter().any(|want| want.wait == Some(0) && want.permits <= setting.limit) {
        list.push(Property::sometimes("a client is denied", |_, situation: &Situation| replied(situation, "denied")));
    }
    if setting.faults > 0 {
        list.push(Property::sometimes("a grant is confirmed, not repeated", |_, situation: &Situation| {
            replied(situation, "held")
        }));
        list.push(Property::sometimes(
            "a call that comes late is granted a permit that nobody wants",
            |_, situation: &Situation| {
                let kept = &situation.sealed.kept;
                let mut holders = kept.gate.model.holders.values();
                let is_held = holders.any(|holder| holder.lives(kept.now()));
                is_held && situation.parties.iter().all(|party| party.is_at_rest())
            },
        ));
    }
    if setting.renewals > 0 {
        list.push(Property::sometimes("a refresh comes too late", |_, situation: &Situation| {
            replied(situation, "lost")
        }));
    }
    if setting.limit > 1 {
        list.push(Property::sometimes("two hold at once", |_, situation: &Situation| {
            let parties = situation.parties.iter();
            let had = parties.filter(|party| !party.client.permits.is_empty());
            had.count() > 1
        }));
    }
    if setting.wants.iter().any(|want| want.permits > setting.limit) {
        list.push(Property::sometimes("a call wants more than the limit", |_, situation: &Situation| {
            replied(situation, "above_limit")
        }));
    }
    list
}

impl Situation {
    /// An event, for reading.
    fn describe(&self, event: Event) -> String {
        let flight = |who: usize, number: u64| {
            let mut flights = self.parties[who].client.flights.iter();
            flights.find(|flight| flight.number == number).map_or(String::new(), Flight::to_string)
        };
        match event {
            Event::Want(who, want) => {
                let how = match (want.wait, want.inbox) {
                    (Some(0), _) => "at once".to_owned(),
                    (wait, true) => format!("in line for {wait:?} ticks"),
                    (wait, false) => format!("in line for {wait:?} ticks without an inbox"),
                };
                let (permits, lease) = (want.permits, want.lease);
                format!("c{who} asks for {permits} {how}, with a lease of {lease} ticks")
            }
            Event::Act(who, thread) => format!("c{who} goes on: {thread:?}"),
            Event::Arrive(who, number) => {
                format!("c{who}: is carried out: {}", flight(who, number))
            }
            Event::Return(who, number) => format!("c{who}: answered: {}", flight(who, number)),
            Event::Break(who, number) => {
                format!("c{who}: the connection breaks of {}", flight(who, number))
            }
            Event::GiveUp(who, number, _) => {
                format!("c{who}: no answer in time to {}", flight(who, number))
            }
            Event::Refuse(who, number) => {
                format!("c{who}: cannot be sent: {}", flight(who, number))
            }
            Event::Read(who) => format!("c{who} reads:"),
            Event::LoseMail(who) => format!("lost on its way to c{who}:"),
            Event::Refresh(who) => format!("c{who} refreshes"),
            Event::Leave(who, 0) => format!("c{who} gives back"),
            Event::Leave(who, keep) => format!("c{who} gives back all but {keep}"),
            Event::Cancel(who) => format!("the wait of c{who} is cancelled"),
            Event::Die(who) => format!("c{who} dies"),
            Event::Tick => "a tick goes by".to_owned(),
            Event::Rest => "nobody wants anything for a long time".to_owned(),
        }
    }
}
