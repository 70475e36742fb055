//! What the record says about each promise.

use crate::record::{Event, What};
use crate::{LIMIT, LONGEST_STAY};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

/// How long after the end of a lease, or of a stay, the next in line may have to wait for the permit.
const HANDOVER: Duration = Duration::from_millis(50);

/// The server tells in whole milliseconds how long a lease has left.
const ROUNDING: Duration = Duration::from_millis(1);

pub struct Promise {
    pub kept: bool,
    text: String,
}

/// Killed while it held a permit; how long its lease still ran then is told by the server.
pub struct DeadHolder {
    pub death: Event,
    pub lease_left: Duration,
}

/// Killed while it waited at this place in line.
pub struct DeadWaiter {
    pub death: Event,
    pub ticket: u64,
}

pub fn read(events: &[Event], holder: &DeadHolder, waiter: &DeadWaiter) -> Vec<Promise> {
    vec![
        limit(events),
        order(events),
        fences(events),
        permit_came_back(events, holder),
        nobody_held_up(events, waiter),
    ]
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.kept { "kept  " } else { "BROKEN" };
        write!(f, "{verdict}  {}", self.text)
    }
}

/// How many are inside after each event. One that was killed there counts until it was dead; that nobody had its permit
/// before its lease ended is part of another promise.
fn inside(events: &[Event]) -> Vec<usize> {
    let mut inside = HashSet::new();
    let count = |event: &Event| {
        match event.what {
            What::Enter { .. } => inside.insert(event.worker.clone()),
            What::Exit { .. } | What::Killed => inside.remove(&event.worker),
        };
        inside.len()
    };
    events.iter().map(count).collect()
}

fn limit(events: &[Event]) -> Promise {
    let most = inside(events).into_iter().max().unwrap_or(0);
    Promise {
        kept: most == LIMIT as usize,
        text: format!("the most inside at once: {most}, and {LIMIT} may be"),
    }
}

/// Whoever waited and has the smaller ticket was granted first.
fn order(events: &[Event]) -> Promise {
    let grants = events.iter().filter_map(|event| match event.what {
        What::Enter { fence, ticket } => Some((fence, ticket)),
        _ => None,
    });
    let mut grants: Vec<(u64, Option<u64>)> = grants.collect();
    grants.sort_unstable();
    let tickets: Vec<u64> = grants.iter().filter_map(|(_, ticket)| *ticket).collect();
    let overtaken = tickets.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    Promise {
        kept: overtaken == 0 && !tickets.is_empty(),
        text: format!(
            "{} grants: {} waited in line, {overtaken} of these were overtaken",
            grants.len(),
            tickets.len()
        ),
    }
}

/// A worker asks after it has left, so its next fence is above all that were recorded until then. And none is given twice.
fn fences(events: &[Event]) -> Promise {
    let (mut given, mut highest, mut stale) = (HashSet::new(), 0, 0);
    let mut when_it_left: HashMap<&str, u64> = HashMap::new();
    for event in events {
        match event.what {
            What::Enter { fence, .. } => {
                let floor = when_it_left.get(event.worker.as_str());
                if !given.insert(fence) || floor.is_some_and(|floor| fence <= *floor) {
                    stale += 1;
                }
                highest = fence.max(highest);
            }
            What::Exit { .. } => {
                when_it_left.insert(&event.worker, highest);
            }
            What::Killed => {}
        }
    }
    Promise {
        kept: stale == 0,
        text: format!(
            "{} fences: {stale} not above those of earlier grants",
            given.len()
        ),
    }
}

/// There is always a line, so once the permit is back as many are inside as may be: not before the lease has ended, and
/// not much later.
fn permit_came_back(events: &[Event], dead: &DeadHolder) -> Promise {
    let DeadHolder { death, lease_left } = dead;
    let counted = events.iter().zip(inside(events));
    let mut later = counted.filter(|(event, _)| event.at > death.at);
    let back = later.find(|(_, inside)| *inside == LIMIT as usize);
    let after = back.map(|(event, _)| event.at - death.at);
    let due = lease_left.saturating_sub(ROUNDING)..=(*lease_left + HANDOVER);
    Promise {
        kept: after.is_some_and(|after| due.contains(&after)),
        text: format!(
            "{}, killed with {} of its lease left: its permit was back {}",
            death.worker,
            ms(*lease_left),
            or_never(after),
        ),
    }
}

/// All who are inside leave within the longest stay, and by then it would have been the dead one's turn: so one from
/// behind it is inside too.
fn nobody_held_up(events: &[Event], dead: &DeadWaiter) -> Promise {
    let DeadWaiter { death, ticket } = dead;
    let behind = |event: &Event| matches!(event.what, What::Enter { ticket: Some(own), .. } if own > *ticket);
    let mut later = events.iter().filter(|event| event.at > death.at);
    let next = later.find(|event| behind(event));
    let after = next.map(|event| event.at - death.at);
    Promise {
        kept: after.is_some_and(|after| after <= LONGEST_STAY + HANDOVER),
        text: format!(
            "{}, killed in line: one from behind it was inside {}",
            death.worker,
            or_never(after),
        ),
    }
}

fn or_never(after: Option<Duration>) -> String {
    after.map_or("never".to_owned(), |after| format!("after {}", ms(after)))
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
