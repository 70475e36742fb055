//! The order of fences and tickets.
//!
//! Each grant and each new place in line takes the next number, which is the fence of the grant, or the
//! ticket of the place. With a head start the ticket is lower.

use crate::support::history::planned::Wrong;
use crate::support::history::rule::Rule;
use crate::support::history::{Call, Outcome, Rules};
use std::collections::{HashMap, HashSet};

/// The maximum number of waiters that one call serves, and so of the numbers that it takes before its own.
pub const SERVED_AT_ONCE: u64 = 100;

/// The numbers of a history.
#[derive(Default)]
pub struct Numbers {
    ranks: HashMap<u64, u32>,
    /// For each call that waited in line: the number of its place.
    places: HashMap<usize, u64>,
}

impl Numbers {
    /// No number may occur twice.
    pub fn of(calls: &[&Call], rules: &Rules) -> Result<Numbers, Wrong> {
        let granted = || {
            calls.iter().enumerate().filter_map(|(at, call)| match &call.outcome {
                Outcome::Granted(granted) => Some((at, *call, granted)),
                _ => None,
            })
        };
        // A repeated call does not know its ticket if the first reply was lost.
        let in_line = granted().filter(|(_, _, granted)| granted.ticket.is_some() || rules.repeated);
        let served: HashSet<u64> = in_line.map(|(_, _, granted)| granted.fence).collect();
        let mut numbers = Numbers::default();
        let mut all: Vec<(u64, usize)> = granted().map(|(at, _, granted)| (granted.fence, at)).collect();
        for (at, call, granted) in granted() {
            let Some(ticket) = granted.ticket else { continue };
            let mut number = ticket.saturating_add(call.head_start());
            // The call computes the ticket first. Then it serves the waiters ahead, and their grants take the
            // next numbers. Then it joins the line.
            while call.head_start() > 0 && served.contains(&number) {
                number += 1;
            }
            numbers.places.insert(at, number);
            all.push((number, at));
        }
        all.sort_unstable();
        for pair in all.windows(2) {
            if pair[0].0 == pair[1].0 {
                return Err(Wrong {
                    rule: Rule::Fence,
                    calls: vec![pair[0].1, pair[1].1],
                    text: format!("the number {} occurs twice", pair[0].0),
                });
            }
        }
        numbers.ranks = all.iter().zip(0..).map(|((number, _), rank)| (*number, rank)).collect();
        Ok(numbers)
    }

    pub fn rank(&self, number: u64) -> u32 {
        self.ranks[&number]
    }

    /// The number that the place in line of this call took.
    pub fn of_place(&self, at: usize) -> u64 {
        self.places[&at]
    }
}
