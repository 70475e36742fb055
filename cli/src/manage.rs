//! `luagate revoke` and `luagate resize`: changes for all callers.

use crate::address::ServerArgs;
use crate::args::{ResizeArgs, RevokeArgs};
use crate::ended::Ended;
use crate::inspect::{describe_holder, describe_waiter, find};
use crate::label;
use luagate::admin::{self, Name};
use luagate::{Gate, Resized, Revoked};
use std::collections::HashSet;
use std::io::{self, BufRead, IsTerminal, Write};

/// The status if nothing was changed.
const NOTHING: u8 = 1;

/// A holder or a waiter.
struct Owner {
    name: Name,
    id: String,
    label: Option<String>,
    is_holder: bool,
    description: String,
}

/// The indexes of the owners that a text means: with this id or label, or the only one whose id begins with it.
fn meant(owners: &[Owner], text: &str) -> Result<Vec<usize>, Ended> {
    let indexes = |is_meant: &dyn Fn(&Owner) -> bool| -> Vec<usize> {
        owners.iter().enumerate().filter(|(_, owner)| is_meant(owner)).map(|(index, _)| index).collect()
    };
    let exact =
        indexes(&|owner| owner.id == text || owner.label.as_deref().is_some_and(|known| label::is_meant(known, text)));
    if !exact.is_empty() {
        return Ok(exact);
    }
    let begun = indexes(&|owner| !text.is_empty() && owner.id.starts_with(text));
    let ids: HashSet<&str> = begun.iter().filter_map(|index| owners.get(*index)).map(|owner| &*owner.id).collect();
    if ids.len() > 1 {
        let count = ids.len();
        return Err(Ended::usage(format!(
            "{text}: {count} ids begin with it. Accepted: an id, a label, or the beginning of one id"
        )));
    }
    Ok(begun)
}

pub fn revoke(server: &ServerArgs, args: &RevokeArgs) -> Result<u8, Ended> {
    if args.ids.is_empty() && !args.holders && !args.waiters {
        let all = "`luagate inspect NAME` shows the ids. Accepted: one or more IDs, --holders or --waiters";
        return Err(Ended::usage(format!("revoke: no ID given. {all}")));
    }
    let gate = server.open()?;
    let owners = owners(&gate, args)?;
    let all = |owner: &Owner| if owner.is_holder { args.holders } else { args.waiters };
    let mut is_chosen: Vec<bool> = owners.iter().map(all).collect();
    let mut status = 0;
    for id in &args.ids {
        let meant = meant(&owners, id)?;
        if meant.is_empty() {
            eprintln!("luagate: {id} neither holds nor waits for {}", args.name);
            status = NOTHING;
        }
        for index in meant {
            if let Some(is_chosen) = is_chosen.get_mut(index) {
                *is_chosen = true;
            }
        }
    }
    let chosen = owners.into_iter().zip(is_chosen).filter_map(|(owner, is_chosen)| is_chosen.then_some(owner));
    let chosen: Vec<Owner> = chosen.collect();
    if chosen.is_empty() {
        return Ok(NOTHING);
    }
    confirm(&chosen, args.yes)?;
    for owner in &chosen {
        match admin::named(&gate, &owner.name).revoke(&owner.id).map_err(Ended::of)? {
            Revoked::Held => println!("revoked the permit of {} for {}", owner.id, owner.name),
            Revoked::Waited => println!("removed {} from the line of {}", owner.id, owner.name),
            Revoked::Nothing => {
                eprintln!("luagate: {} has nothing any more", owner.id);
                status = NOTHING;
            }
        }
    }
    Ok(status)
}

/// The holders and the waiters of this name.
fn owners(gate: &Gate, args: &RevokeArgs) -> Result<Vec<Owner>, Ended> {
    let mut owners = Vec::new();
    for (name, state) in find(gate, &args.name, args.kind, u32::MAX)? {
        let holders = state.holders.iter().filter(|holder| !holder.cooling_down);
        let holders = holders.map(|holder| Owner {
            id: holder.id.clone(),
            label: holder.label().map(str::to_owned),
            is_holder: true,
            description: describe_holder(holder),
            name: name.clone(),
        });
        owners.extend(holders);
        owners.extend(state.waiters.iter().map(|waiter| Owner {
            id: waiter.id.clone(),
            label: waiter.label().map(str::to_owned),
            is_holder: false,
            description: describe_waiter(waiter),
            name: name.clone(),
        }));
    }
    Ok(owners)
}

/// Asks on the terminal.
fn confirm(owners: &[Owner], is_confirmed: bool) -> Result<(), Ended> {
    if is_confirmed {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Ended::usage("revoke: not confirmed. Without a terminal, confirm with --yes"));
    }
    let mut stderr = io::stderr().lock();
    for owner in owners {
        writeln!(stderr, "{}: {}", owner.name, owner.description)?;
    }
    write!(stderr, "Revoke {}? [y/N] ", owners.len())?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Ended::usage("revoke: not confirmed. Nothing was changed")),
    }
}

pub fn resize(server: &ServerArgs, args: &ResizeArgs) -> Result<u8, Ended> {
    let gate = server.open()?;
    let semaphore = gate.stored_semaphore(&args.name);
    let Some(limit) = args.limit else {
        semaphore.unpin().map_err(Ended::of)?;
        println!("{}: the limit that callers declare applies again", args.name);
        return Ok(0);
    };
    let resized = match args.expected {
        Some(expected) => semaphore.compare_and_resize(expected, limit),
        None => semaphore.resize(limit),
    };
    match resized.map_err(Ended::of)? {
        Resized::Resized { old, in_use } => {
            println!("{}: limit {limit}, before {old}; in use {in_use}", args.name);
            Ok(0)
        }
        Resized::Unchanged { current } => {
            eprintln!("luagate: {}: the limit in force is {current}. Nothing was changed", args.name);
            Ok(NOTHING)
        }
    }
}
