//! `luagate inspect`: the holders and waiters of a name, and since when.

use crate::address::ServerArgs;
use crate::args::{InspectArgs, KindArg};
use crate::ended::Ended;
use crate::label;
use crate::output::{self, visible};
use crate::sample::Sample;
use crate::table::{self, NONE, age, age_or_none, ms};
use crate::unreadable::{self, Unreadable};
use luagate::Gate;
use luagate::admin::{Kind, Name};
use luagate::errors::CallError;
use luagate::inspection::{Holder, Inspection, Waiter};
use serde_json::{Value, json};

/// The largest page.
const PAGE: u32 = 1_000;

pub fn inspect(server: &ServerArgs, args: &InspectArgs) -> Result<u8, Ended> {
    let gate = server.open()?;
    let found = find(&gate, &args.name, args.kind, args.most)?;
    if args.json {
        let names: Vec<_> = found.iter().map(|(name, state)| as_json(name, state)).collect();
        output::print(output::json(&json!({ "names": names })))?;
        return Ok(0);
    }
    if found.is_empty() {
        output::print(format!("{}: nobody holds it and nobody waits", visible(&args.name)))?;
    }
    for (index, (name, state)) in found.iter().enumerate() {
        if index > 0 {
            output::print("")?;
        }
        print(name, state)?;
    }
    Ok(0)
}

/// The state of this name, of each kind that is stored. A name may be given as it is shown.
pub fn find(
    gate: &Gate,
    name: &str,
    kind: Option<KindArg>,
    most: u32,
) -> Result<Vec<(Name, Inspection)>, Ended> {
    let name = output::hidden(name).unwrap_or_else(|| name.to_owned());
    let kinds = Kind::ALL.iter().copied().filter(|found| kind.is_none_or(|kind| *found == Kind::from(kind)));
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for kind in kinds {
        let name = Name { name: name.clone(), kind };
        match read(gate, &name, most).map_err(Ended::of)? {
            Ok(state) if state.limit.is_some() => found.push((name, state)),
            Ok(_) => {}
            Err(Unreadable { error: error @ CallError::Invalid(_), .. }) => return Err(Ended::of(error)),
            Err(skipped) => unreadable.push(skipped),
        }
    }
    match unreadable.first() {
        Some(first) if found.is_empty() => {
            Err(Ended { message: Some(first.to_string()), ..Ended::of(first.error.clone()) })
        }
        _ => {
            unreadable::warn(&unreadable);
            Ok(found)
        }
    }
}

/// Reads at most `most` holders and as many waiters, in pages. Two pages show two different instants.
fn read(gate: &Gate, name: &Name, most: u32) -> Result<Result<Inspection, Unreadable>, CallError> {
    let mut state = match unreadable::inspect(gate, name, 0, most.min(PAGE))? {
        Ok(state) => state,
        Err(unreadable) => return Ok(Err(unreadable)),
    };
    let mut offset = PAGE;
    while offset < most && state.holder_count.max(state.waiter_count) > u64::from(offset) {
        let page = match unreadable::inspect(gate, name, offset, (most - offset).min(PAGE))? {
            Ok(page) => page,
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        state.holders.extend(page.holders);
        state.waiters.extend(page.waiters);
        offset += PAGE;
    }
    Ok(Ok(state))
}

fn print(name: &Name, state: &Inspection) -> Result<(), Ended> {
    let Some(sample) = Sample::of(name, state) else {
        return Ok(());
    };
    let pinned = if state.pinned { ", limit set by `luagate resize`" } else { "" };
    let (name_shown, usage) = (visible(&name.to_string()), sample.usage());
    let waiting = state.waiter_count;
    output::print(format!(
        "{name_shown}: in use {}, waiting {waiting}{pinned}",
        usage.trim_end_matches('*')
    ))?;
    if !state.holders.is_empty() {
        output::print("")?;
        let rows = state.holders.iter().map(|holder| holder_cells(name.kind, holder));
        table::print(&["HOLDERS", "PERMITS", "SINCE", "LEASE LEFT", "FENCE", "REASON", "ID"], rows)?;
        tell_more(state.holders.len(), state.holder_count)?;
    }
    if !state.waiters.is_empty() {
        output::print("")?;
        let rows = state.waiters.iter().enumerate().map(|(index, waiter)| {
            let permits = share(name.kind, waiter.permits);
            vec![
                (index + 1).to_string(),
                permits,
                age(waiter.age),
                reason(waiter.label()),
                visible(&waiter.id),
            ]
        });
        table::print(&["WAITERS", "PERMITS", "SINCE", "REASON", "ID"], rows)?;
        tell_more(state.waiters.len(), state.waiter_count)?;
    }
    Ok(())
}

/// The cells of a holder: its state, permits, age, the rest of its lease, fence, reason, id.
pub fn holder_cells(kind: Kind, holder: &Holder) -> Vec<String> {
    let state = if holder.cooling_down { "released" } else { "held" };
    let left = holder.remaining.map_or_else(|| "permanent".to_owned(), age);
    let permits = share(kind, holder.permits);
    let (fence, reason) = (holder.fence.to_string(), reason(holder.label()));
    vec![state.to_owned(), permits, age(holder.age), left, fence, reason, visible(&holder.id)]
}

/// The cell with the reason in a label.
pub fn reason(label: Option<&str>) -> String {
    label::reason(label).map_or_else(|| NONE.to_owned(), |reason| visible(&reason))
}

/// The number of permits; of a reader-writer lock their meaning.
pub fn share(kind: Kind, permits: u32) -> String {
    match kind {
        Kind::RwLock if i64::from(permits) >= crate::args::MOST => "write".to_owned(),
        Kind::RwLock => "read".to_owned(),
        _ => permits.to_string(),
    }
}

fn tell_more(shown: usize, all: u64) -> Result<(), Ended> {
    match all.checked_sub(shown as u64) {
        Some(more @ 1..) => output::print(format!("... and {more} more: --most {all} shows all")),
        _ => Ok(()),
    }
}

fn as_json(name: &Name, state: &Inspection) -> Value {
    let mut json = Sample::of(name, state).map_or(Value::Null, |sample| sample.json());
    if let Value::Object(fields) = &mut json {
        fields.insert("holder_list".to_owned(), state.holders.iter().map(holder_json).collect());
        let waiters = state.waiters.iter().enumerate().map(|(index, waiter)| waiter_json(index + 1, waiter));
        fields.insert("waiter_list".to_owned(), waiters.collect());
    }
    json
}

fn holder_json(holder: &Holder) -> Value {
    json!({
        "id": holder.id,
        "label": holder.label(),
        "reason": label::reason(holder.label()),
        "permits": holder.permits,
        "fence": holder.fence,
        "age_ms": ms(holder.age),
        "remaining_ms": holder.remaining.map(ms),
        "cooling_down": holder.cooling_down,
    })
}

fn waiter_json(place: usize, waiter: &Waiter) -> Value {
    json!({
        "id": waiter.id,
        "label": waiter.label(),
        "reason": label::reason(waiter.label()),
        "permits": waiter.permits,
        "place": place,
        "ticket": waiter.ticket.to_string().parse::<u64>().ok(),
        "age_ms": ms(waiter.age),
        "patience_ms": ms(waiter.patience),
    })
}

/// One line about a holder, for a question.
pub fn describe_holder(holder: &Holder) -> String {
    let left = age_or_none(holder.remaining);
    let (id, why) = (visible(&holder.id), described_reason(holder.label()));
    format!("holder {id}, {} permit(s) for {}, lease left {left}{why}", holder.permits, age(holder.age))
}

/// One line about a waiter, for a question.
pub fn describe_waiter(waiter: &Waiter) -> String {
    let (id, why) = (visible(&waiter.id), described_reason(waiter.label()));
    format!("waiter {id}, {} permit(s), for {}{why}", waiter.permits, age(waiter.age))
}

fn described_reason(label: Option<&str>) -> String {
    label::reason(label).map(|reason| format!(", reason: {}", visible(&reason))).unwrap_or_default()
}
