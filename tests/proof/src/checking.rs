//! Model checking of the scripts' own text with [stateright](https://docs.rs/stateright): everything that
//! three clients can do with one semaphore, in every order, within the bounds of a [`Setting`].
//!
//! **Covered.** Each client runs the library's own machines: the waiter, its mailbox and inbox, the keeper
//! and the pending releases. It asks at once or in line, with weights of 1 and 2, for leases of one or two
//! ticks, without a time limit or until a deadline. It receives its grant by a message, or only polls. It
//! refreshes, and releases all or some permits. These faults happen: a connection breaks and the call is sent
//! again, a reply does not arrive in time, a call cannot be sent, a message is lost, a wait is cancelled, a
//! client dies and its subscription with it. A call on its way may be executed later, or never. Between any
//! two events the server may execute calls and time may pass. An idle, asking or waiting client may stay so
//! for ever. The bounds are: how often each client wants something and refreshes, how many faults one story
//! has, and how many ticks a call or a client is late. Within these bounds the exploration is complete: all
//! situations, without a depth limit.
//!
//! **Not covered.** Time passes in ticks of 5 s, the longest sleep of a waiter: actions that a client plans
//! in between happen at the next tick. Leases are whole ticks and no script takes any time, so races within
//! one millisecond are left to the simulation. So are renewals, fixed ids, strict limits, forged messages,
//! lost keys, restarts, clock steps, full memory, resizing, subscriptions that drop while their client is
//! alive, latches, and more than three clients. Messages to one client arrive in order.
//!
//! **Checked** in every situation are the invariants, one property each (see [`RULES`]). *Waiting* is checked
//! in every situation too: if nothing goes wrong from here on, and nobody releases anything, each waiter is
//! served within a number of ticks. Further properties must be found at least once. They show that the other
//! properties do not hold only because nothing happens.

mod calm;
mod explored;
mod properties;
mod story;

use crate::carrier::Carrier;
use crate::scripts::Scripts;
use crate::situation::{Event, Setting, Situation, Want};
pub use explored::{Explored, Failure, explore};
use stateright::{Model, Property};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The invariants.
pub const RULES: [&str; 14] = [
    "limit",
    "minimum hold",
    "line",
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

/// The number of maps that cache, for each situation, in how many ticks every waiter is served if nothing
/// more goes wrong.
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<u64, u64>>;

/// A setting with everything that can happen in it.
#[derive(Clone)]
pub struct World {
    setting: Setting,
    carrier: Carrier,
    served: Arc<Vec<Shard>>,
}

/// Settings whose exploration takes about a second.
pub fn small() -> Vec<Setting> {
    let want =
        Want { permits: 1, lease: 1, at_least: 0, max_waiting: 0, head_start: 0, wait: None, inbox: true };
    let fault = Setting {
        name: "two late clients, one fault",
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
        Setting { name: "first use, one fault", opened: false, wants: vec![want, hasty], ..fault.clone() };
    vec![fault, first]
}

impl World {
    /// # Errors
    /// When a script is not valid Lua.
    pub fn new(setting: &Setting, scripts: &Scripts) -> Result<World, String> {
        Ok(World {
            setting: setting.clone(),
            carrier: Carrier::new(scripts)?,
            served: Arc::new((0..SHARDS).map(|_| Shard::default()).collect()),
        })
    }

    /// Explores everything; stops at the first broken promise.
    pub fn explore(&self, threads: usize) -> Explored {
        let explored = explore(self, threads, |rule, events| self.story(rule, events));
        Explored { longest_wait: self.longest_wait(), ..explored }
    }
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
        self.promises()
    }
}
