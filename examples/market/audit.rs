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
    pub died: Duration,
    pub lease_left: Duration,
}

/// Killed while it waited at this place in line.
pub struct DeadWaiter {
    pub died: Duration,
    pub ticket: u64,
}

/// `late` is how late things are by no fault of a semaphore's, since the machine is busy or the server far away.
pub fn read(events: &[Event], holder: &DeadHolder, waiter: &DeadWaiter, late: Duration) -> Vec<Promise> {
    let handover = HANDOVER + late;
    vec![
        limit(events),
        order(events),
        fences(events),
        permit_came_back(events, holder, handover),
        nobody_held_up(events, waiter, handover),
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
    Promise { kept: most == LIMIT as usize, text: format!("most inside at once: {most} of {LIMIT}") }
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
        text: format!("{} grants, {} of them in line, {overtaken} overtaken", grants.len(), tickets.len()),
    }
}

/// A worker asks after it has left, so its next fence is above all that were recorded until then. None is given twice.
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
    Promise { kept: stale == 0, text: format!("{} fences, {stale} of them not above earlier ones", given.len()) }
}

/// There is always a line, so once the permit is back as many are inside as may be: not before the lease has ended, and
/// not much later.
fn permit_came_back(events: &[Event], dead: &DeadHolder, handover: Duration) -> Promise {
    let DeadHolder { died, lease_left } = dead;
    let counted = events.iter().zip(inside(events));
    let mut later = counted.filter(|(event, _)| event.at > *died);
    let back = later.find(|(_, inside)| *inside == LIMIT as usize);
    let after = back.map(|(event, _)| event.at - *died);
    let (earliest, latest) = (lease_left.saturating_sub(ROUNDING), *lease_left + handover);
    Promise {
        kept: after.is_some_and(|after| (earliest..=latest).contains(&after)),
        text: format!(
            "killed holder: lease left {}, permit back {} (at most {})",
            ms(*lease_left),
            or_never(after),
            latest.as_millis(),
        ),
    }
}

/// All who are inside leave within the longest stay, and by then it would have been the dead one's turn: so one from
/// behind it is inside too.
fn nobody_held_up(events: &[Event], dead: &DeadWaiter, handover: Duration) -> Promise {
    let DeadWaiter { died, ticket } = dead;
    let behind = |event: &Event| matches!(event.what, What::Enter { ticket: Some(own), .. } if own > *ticket);
    let mut later = events.iter().filter(|event| event.at > *died);
    let next = later.find(|event| behind(event));
    let after = next.map(|event| event.at - *died);
    let latest = LONGEST_STAY + handover;
    Promise {
        kept: after.is_some_and(|after| after <= latest),
        text: format!("killed waiter: one from behind it inside {} (at most {})", or_never(after), latest.as_millis(),),
    }
}

fn or_never(after: Option<Duration>) -> String {
    after.map_or("never".to_owned(), |after| format!("after {}", ms(after)))
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
