//! One opened name: its holders and waiters.

use crate::inspect::{describe_holder, describe_waiter, holder_cells, reason, share};
use crate::output::visible;
use crate::sample::Sample;
use crate::table::{NONE, age};
use luagate::admin::Name;
use luagate::inspection::Inspection;

/// The columns of an opened name.
pub const HEAD: [&str; 7] = ["STATE", "PERMITS", "SINCE", "LEASE LEFT", "FENCE", "REASON", "ID"];

/// The column of the reason.
pub const REASON: usize = 5;

/// A holder or a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub id: String,
    /// One for each column of `HEAD`.
    pub cells: Vec<String>,
    /// For the question whether to revoke it.
    pub description: String,
    /// Nobody holds permits that are cooling down.
    pub can_be_revoked: bool,
}

/// The state of an opened name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// `None`: the name is not stored any more.
    pub sample: Option<Sample>,
    pub owners: Vec<Owner>,
    /// How many holders and waiters there are besides these.
    pub more: u64,
}

impl Detail {
    pub fn of(name: &Name, state: &Inspection) -> Detail {
        let holders = state.holders.iter().map(|holder| Owner {
            id: holder.id.clone(),
            cells: holder_cells(name.kind, holder),
            description: describe_holder(holder),
            can_be_revoked: !holder.cooling_down,
        });
        let waiters = state.waiters.iter().enumerate().map(|(index, waiter)| {
            let place = format!("waits {}", index + 1);
            let permits = share(name.kind, waiter.permits);
            let none = || NONE.to_owned();
            Owner {
                id: waiter.id.clone(),
                cells: vec![
                    place,
                    permits,
                    age(waiter.age),
                    none(),
                    none(),
                    reason(waiter.label()),
                    visible(&waiter.id),
                ],
                description: describe_waiter(waiter),
                can_be_revoked: true,
            }
        });
        let owners: Vec<Owner> = holders.chain(waiters).collect();
        let all = state.holder_count.saturating_add(state.waiter_count);
        Detail { sample: Sample::of(name, state), more: all.saturating_sub(owners.len() as u64), owners }
    }
}
