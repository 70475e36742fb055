//! Checks each promise against the record.

use crate::record::{Event, What};
use crate::{LIMIT, LONGEST_STAY};
use luagate::Ticket;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

/// The maximum delay between the end of a lease or a stay and the next grant.
const HANDOVER: Duration = Duration::from_millis(50);

/// The server reports the rest of a lease in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

pub struct Promise {
    pub kept: bool,
    text: String,
}

/// A worker that was killed while it held a permit. The server reported how long its lease still ran.
pub struct DeadHolder {
    pub died: Duration,
    pub lease_left: Duration,
}

/// A worker that was killed while it waited with this ticket.
pub struct DeadWaiter {
    pub died: Duration,
    pub ticket: Ticket,
}

/// `late` is the measured delay that the semaphore does not cause: a busy machine, or a server far away.
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

/// The number of workers inside after each event. A killed worker counts until it was dead. Another promise
/// covers the time from then until the end of its lease.
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
        text: format!("maximum inside at the same time: {most} of {LIMIT}"),
    }
}

/// Of two workers that waited, the one with the smaller ticket was granted first.
fn order(events: &[Event]) -> Promise {
    let grants = events.iter().filter_map(|event| match event.what {
        What::Enter { fence, ticket } => Some((fence, ticket)),
        _ => None,
    });
    let mut grants: Vec<(u64, Option<Ticket>)> = grants.collect();
    grants.sort_unstable();
    let tickets: Vec<Ticket> = grants.iter().filter_map(|(_, ticket)| *ticket).collect();
    let overtaken = tickets.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    Promise {
        kept: overtaken == 0 && !tickets.is_empty(),
        text: format!("{} grants, {} of them in line, {overtaken} overtaken", grants.len(), tickets.len()),
    }
}

/// A worker asks again only after its exit. So its next fence must be higher than all fences recorded until
/// that exit. No fence may occur twice.
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
        text: format!("{} fences, {stale} of them not above earlier ones", given.len()),
    }
}

/// There is always a line. So when the permit is free again, the number of workers inside reaches the limit
/// again. This must not happen before the lease has ended, and not much later.
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

/// All workers inside leave within the longest stay. By then it would have been the turn of the killed
/// waiter. So a worker from behind it must be inside by then.
fn nobody_held_up(events: &[Event], dead: &DeadWaiter, handover: Duration) -> Promise {
    let DeadWaiter { died, ticket } = dead;
    let behind = |event: &Event| matches!(event.what, What::Enter { ticket: Some(own), .. } if own > *ticket);
    let mut later = events.iter().filter(|event| event.at > *died);
    let next = later.find(|event| behind(event));
    let after = next.map(|event| event.at - *died);
    let latest = LONGEST_STAY + handover;
    Promise {
        kept: after.is_some_and(|after| after <= latest),
        text: format!(
            "killed waiter: a worker behind it was granted {} (at most {})",
            or_never(after),
            latest.as_millis(),
        ),
    }
}

fn or_never(after: Option<Duration>) -> String {
    after.map_or("never".to_owned(), |after| format!("after {}", ms(after)))
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
