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

/// What is never broken.
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

/// Settings that are explored in a second.
pub fn small() -> Vec<Setting> {
    let want = Want { permits: 1, lease: 1, at_least: 0, max_waiting: 0, wait: None, inbox: true };
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
