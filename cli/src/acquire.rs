//! `luagate acquire`: a permit that another process releases, with `luagate release`.

pub mod keeper;
mod process;

pub use keeper::keep;

use crate::address::ServerArgs;
use crate::args::{AcquireArgs, PermitArgs};
use crate::ended::{Ended, LOST};
use crate::held::Held;
use crate::output;
use crate::run::{self, Deadline, Obtained};
use clap::ArgMatches;
use keeper::{Keeper, Kept};
use nix::unistd::getppid;
use process::Process;
use std::io::{self, Write};
use std::time::Duration;

/// The longest lease until the keeper has taken over. If this process is killed before, the permit ends after
/// it.
const FIRST_LEASE: Duration = Duration::from_secs(5);

/// Acquires a permit, prints it, and leaves a keeper behind. `matches`: of the subcommand.
pub fn acquire(server: &ServerArgs, mut args: AcquireArgs, matches: &ArgMatches) -> Result<u8, Ended> {
    let lease = args.permit.lease;
    Deadline::new(lease, None).map_err(Ended::usage)?;
    let [name] = &args.permit.names[..] else {
        return Err(Ended::usage(format!(
            "acquire: got {} names. Accepted: one NAME",
            args.permit.names.len()
        )));
    };
    if output::is_closed() {
        return Err(Ended::new(
            1,
            "nothing was acquired: the standard output is closed, so the id cannot be printed",
        ));
    }
    if args.no_keeper {
        if matches.value_source("lease") != Some(clap::parser::ValueSource::CommandLine) {
            return Err(Ended::usage(
                "--no-keeper: no --lease given. Accepted: --no-keeper with --lease DURATION",
            ));
        }
        args.permit.process = Some(getppid().as_raw().unsigned_abs());
        let obtained = obtain(server, args.permit, matches)?;
        let printed = print(&line(&obtained));
        match printed {
            Ok(()) => drop(obtained.keep().into_id()),
            Err(_) => obtained.release(),
        }
        return printed.map(|()| 0);
    }
    let process = watched(args.pid)?;
    let keeper = Keeper::start(name)?;
    args.permit.process = Some(keeper.id());
    args.permit.lease = lease.min(FIRST_LEASE);
    let is_told = args.pid.is_none() && !args.permit.quiet;
    let obtained = obtain(server, args.permit, matches)?;
    let name = &obtained.name;
    let kept = Kept::new(server, Held::new(name, obtained.permit.id()), lease, process.clone(), args.at_most);
    let told = is_told.then(|| format!("{} is kept while process {process} runs", name.name));
    hand_over(keeper, &kept, obtained, told)?;
    Ok(0)
}

fn obtain(server: &ServerArgs, args: PermitArgs, matches: &ArgMatches) -> Result<Obtained, Ended> {
    run::obtain(server, args, matches)?.ok_or_else(|| Ended::new(LOST, "no permit was obtained"))
}

/// From the answer of the keeper on, only the keeper renews the permit, since it knows the whole lease.
fn hand_over(keeper: Keeper, kept: &Kept, obtained: Obtained, told: Option<String>) -> Result<(), Ended> {
    let line = line(&obtained);
    let keeper = match keeper.take_over(kept) {
        Ok(keeper) => keeper,
        Err(ended) => {
            obtained.release();
            return Err(ended);
        }
    };
    drop(obtained.keep().into_id());
    match print(&line) {
        Ok(()) => {
            told.into_iter().for_each(output::warn);
            keeper.confirm()
        }
        Err(ended) => {
            keeper.release();
            Err(ended)
        }
    }
}

/// The process whose end releases the permit.
fn watched(id: Option<i32>) -> Result<Process, Ended> {
    let parent = getppid().as_raw();
    if std::process::id() == 1 {
        return Err(Ended::usage(
            "acquire: it is the first process of this container, so its keeper would end with it. Accepted: --no-keeper, or \
             `luagate run`",
        ));
    }
    if id.is_none() && parent == 0 {
        return Err(Ended::usage(
            "acquire: its parent is outside of this container, so it cannot be watched. Accepted: --pid PID",
        ));
    }
    let id = id.unwrap_or(parent);
    Process::of(id)?
        .ok_or_else(|| Ended::usage(format!("--pid: no process {id} is running here. Accepted: one that is")))
}

fn line(Obtained { name, permit, .. }: &Obtained) -> String {
    format!("{} {} {}\n", name.name, permit.id(), permit.fence())
}

fn print(line: &str) -> Result<(), Ended> {
    let mut output = io::stdout().lock();
    let printed = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    printed.map_err(|error| {
        Ended::new(1, format!("the permit was released: the output cannot be written: {error}"))
    })
}
