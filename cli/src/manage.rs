//! `luagate revoke` and `luagate resize`: changes for all callers.

use crate::address::ServerArgs;
use crate::args::{ResizeArgs, RevokeArgs};
use crate::ended::Ended;
use crate::inspect::{describe_holder, describe_waiter, find};
use crate::label;
use crate::output::{self, visible};
use luagate::admin::{self, Kind, Name};
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

/// The indexes of the owners that a text means: with this id or label, or the only one whose id begins with
/// it. The text may also be what `inspect` shows of them.
fn meant(owners: &[Owner], text: &str) -> Result<Vec<usize>, Ended> {
    let indexes = |is_meant: &dyn Fn(&Owner) -> bool| -> Vec<usize> {
        owners.iter().enumerate().filter(|(_, owner)| is_meant(owner)).map(|(index, _)| index).collect()
    };
    let is = |known: &str| known == text || visible(known) == text;
    let is_meant = |label: &str| is(label) || label::is_meant(label, text);
    let exact = indexes(&|owner| is(&owner.id) || owner.label.as_deref().is_some_and(is_meant));
    if !exact.is_empty() {
        return Ok(exact);
    }
    let begun = indexes(&|owner| {
        !text.is_empty() && (owner.id.starts_with(text) || visible(&owner.id).starts_with(text))
    });
    let ids: HashSet<&str> =
        begun.iter().filter_map(|index| owners.get(*index)).map(|owner| &*owner.id).collect();
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
            output::warn(format!("{id} neither holds nor waits for {}", args.name));
            status = NOTHING;
        }
        for index in meant {
            if let Some(is_chosen) = is_chosen.get_mut(index) {
                *is_chosen = true;
            }
        }
    }
    let chosen =
        owners.into_iter().zip(is_chosen).filter_map(|(owner, is_chosen)| is_chosen.then_some(owner));
    let chosen: Vec<Owner> = chosen.collect();
    if chosen.is_empty() {
        if args.ids.is_empty() {
            output::warn(format!("nobody holds or waits for {} as asked. Nothing was changed", args.name));
        }
        return Ok(NOTHING);
    }
    confirm(&chosen, args.yes)?;
    // All are revoked, also if the output cannot be written.
    let mut printed = Ok(());
    for Owner { name, id, .. } in &chosen {
        let revoked = admin::semaphore(&gate, name).revoke(id).map_err(Ended::of)?;
        printed = printed.and(match describe_revoked(name, id, revoked) {
            Ok(text) => output::print(text),
            Err(text) => {
                output::warn(text);
                status = NOTHING;
                Ok(())
            }
        });
    }
    printed.map(|()| status)
}

/// What a revocation has done. An error if it has changed nothing.
pub fn describe_revoked(name: &Name, id: &str, revoked: Revoked) -> Result<String, String> {
    let (id, name) = (visible(id), visible(&name.to_string()));
    match revoked {
        Revoked::Held => Ok(format!("revoked the permit of {id} for {name}")),
        Revoked::Waited => Ok(format!("removed {id} from the line of {name}")),
        Revoked::Nothing => Err(format!("{id} has nothing any more")),
    }
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
    let lines = owners.iter().map(|owner| visible(&format!("{}: {}", owner.name, owner.description)) + "\n");
    let question = lines.collect::<String>() + &format!("Revoke {}? [y/N] ", owners.len());
    let mut answer = String::new();
    let mut stderr = io::stderr().lock();
    let asked =
        stderr.write_all(question.as_bytes()).and_then(|()| io::stdin().lock().read_line(&mut answer));
    asked.map_err(|error| {
        Ended::usage(format!("revoke: cannot ask for confirmation: {error}. Nothing was changed"))
    })?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Ended::usage("revoke: not confirmed. Nothing was changed")),
    }
}

pub fn resize(server: &ServerArgs, args: &ResizeArgs) -> Result<u8, Ended> {
    let gate = server.open()?;
    let name = output::hidden(&args.name).unwrap_or_else(|| args.name.clone());
    let stored = find(&gate, &name, None, 1)?;
    let (semaphore, shown) = (gate.stored_semaphore(&name), visible(&name));
    let state = stored.iter().find(|(name, _)| name.kind == Kind::Semaphore).map(|(_, state)| state);
    if state.is_none() && !args.create {
        return Err(not_stored(&shown, stored.first().map(|(name, _)| name.kind)));
    }
    let Some(limit) = args.limit else {
        if !state.is_some_and(|state| state.pinned) {
            return Err(Ended::new(
                NOTHING,
                format!("{shown}: its limit was not set by `resize`. Nothing was changed"),
            ));
        }
        semaphore.unpin_limit().map_err(Ended::of)?;
        output::print(format!("{shown}: the limit that callers declare applies again"))?;
        return Ok(0);
    };
    let mut expected = args.expected.or_else(|| state.and_then(|state| state.limit));
    loop {
        let resized = match expected {
            Some(expected) => semaphore.compare_and_resize(Some(expected).filter(|limit| *limit > 0), limit),
            None => semaphore.resize(limit),
        };
        match resized.map_err(Ended::of)? {
            Resized::Resized { old, in_use } => {
                let old = old.map_or("none".to_owned(), |old| old.to_string());
                output::print(format!("{shown}: limit {limit}, before {old}; in use {in_use}"))?;
                return Ok(0);
            }
            Resized::Unchanged { current: None } if !args.create => return Err(not_stored(&shown, None)),
            // Another one has changed it meanwhile.
            Resized::Unchanged { current } if args.expected.is_none() => {
                expected = Some(current.unwrap_or(0))
            }
            Resized::Unchanged { current } => {
                let current = current.unwrap_or(0);
                let text = format!("{shown}: the limit in force is {current}. Nothing was changed");
                return Err(Ended::new(NOTHING, text));
            }
        }
    }
}

/// `kind`: as what the name is stored.
fn not_stored(name: &str, kind: Option<Kind>) -> Ended {
    let why = match kind {
        Some(kind) => {
            format!("{name} is a {kind}, whose limit cannot be changed. Accepted: the name of a semaphore")
        }
        None => format!("{name}: no semaphore with this name is stored. Check it with `luagate ls`"),
    };
    Ended::new(NOTHING, format!("{why}, or --create for a new semaphore"))
}
