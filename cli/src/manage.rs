//! `luagate revoke` and `luagate resize`: changes for all callers.

use crate::address::ServerArgs;
use crate::args::{ResizeArgs, RevokeArgs};
use crate::ended::Ended;
use crate::inspect::{describe_holder, describe_waiter, find};
use luagate::inspection::Name;
use luagate::{Resized, Revoked};
use std::io::{self, BufRead, IsTerminal, Write};

/// What was asked for did not happen.
const NOTHING: u8 = 1;

/// Somebody who has something.
struct Owner {
    name: Name,
    id: String,
    description: String,
}

pub fn revoke(server: &ServerArgs, args: &RevokeArgs) -> Result<u8, Ended> {
    if args.ids.is_empty() && !args.holders && !args.waiters {
        let all = "`luagate inspect NAME` shows the ids. Accepted: one or more IDs, --holders or --waiters";
        return Err(Ended::usage(format!("revoke: no ID given. {all}")));
    }
    let gate = server.open()?;
    let found = find(&gate, &args.name, args.kind, u32::MAX)?;
    let mut owners = Vec::new();
    for (name, state) in &found {
        let holders = state.holders.iter().filter(|holder| !holder.cooling_down);
        owners.extend(holders.map(|holder| (args.holders, name, holder.id.clone(), describe_holder(holder))));
        owners.extend(state.waiters.iter().map(|w| (args.waiters, name, w.id.clone(), describe_waiter(w))));
    }
    let begins = |id: &str| args.ids.iter().any(|begin| !begin.is_empty() && id.starts_with(begin.as_str()));
    let chosen = owners.into_iter().filter(|(all, _, id, _)| *all || begins(id));
    let chosen = chosen.map(|(_, name, id, description)| Owner { name: name.clone(), id, description });
    let chosen: Vec<Owner> = chosen.collect();
    let missing = args.ids.iter().filter(|begin| !chosen.iter().any(|owner| owner.id.starts_with(begin.as_str())));
    let missing: Vec<&String> = missing.collect();
    for id in &missing {
        eprintln!("luagate: {id} neither holds nor waits for {}", args.name);
    }
    if chosen.is_empty() {
        return Ok(NOTHING);
    }
    confirm(&chosen, args.yes)?;
    let mut status = if missing.is_empty() { 0 } else { NOTHING };
    for owner in &chosen {
        match gate.named(&owner.name).revoke(&owner.id).map_err(Ended::of)? {
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
