//! `luagate acquire`: a permit that another process releases, with `luagate release`.

mod keeper;
mod process;

pub use keeper::keep;

use crate::address::ServerArgs;
use crate::args::AcquireArgs;
use crate::ended::{Ended, LOST};
use crate::held::Held;
use crate::run::{self, Deadline};
use clap::ArgMatches;
use keeper::{Keeper, Kept};
use luagate::Permit;
use luagate::admin::Name;
use nix::unistd::getppid;
use process::Process;
use std::io::{self, Write};

/// Acquires a permit, prints it, and leaves a keeper behind. `matches`: of the subcommand.
pub fn acquire(server: &ServerArgs, mut args: AcquireArgs, matches: &ArgMatches) -> Result<u8, Ended> {
    let lease = args.permit.lease;
    Deadline::new(lease, None).map_err(Ended::usage)?;
    let [name] = &args.permit.names[..] else {
        return Err(Ended::usage(format!("acquire: got {} names. Accepted: one NAME", args.permit.names.len())));
    };
    let keeper = if args.no_keeper {
        if matches.value_source("lease") != Some(clap::parser::ValueSource::CommandLine) {
            return Err(Ended::usage("--no-keeper: no --lease given. Accepted: --no-keeper with --lease DURATION"));
        }
        args.permit.process = Some(getppid().as_raw().unsigned_abs());
        None
    } else {
        let process = watched(args.pid)?;
        let keeper = Keeper::start(name)?;
        args.permit.process = Some(keeper.id());
        Some((keeper, process))
    };
    let obtained = run::obtain(server, args.permit, matches)?;
    let (name, permit) = obtained.ok_or_else(|| Ended::new(LOST, "no permit was obtained"))?;
    let kept = |process| Kept::new(server, Held::new(&name, permit.id()), lease, process, args.at_most);
    let keeper = keeper.map(|(keeper, process)| keeper.take_over(&kept(process))).transpose();
    let handed_over = keeper.and_then(|keeper| {
        print(&name, &permit)?;
        keeper.map_or(Ok(()), Keeper::confirm)
    });
    match handed_over {
        Ok(()) => drop(permit.into_id()),
        Err(_) => drop(permit.release()),
    }
    handed_over.map(|()| 0)
}

/// The process whose end releases the permit.
fn watched(id: Option<i32>) -> Result<Process, Ended> {
    let id = id.unwrap_or_else(|| getppid().as_raw());
    Process::of(id)
        .ok_or_else(|| Ended::usage(format!("--pid: no process {id} is running here. Accepted: one that is")))
}

fn print(name: &Name, permit: &Permit) -> Result<(), Ended> {
    let mut output = io::stdout().lock();
    let line = format!("{} {} {}\n", name.name, permit.id(), permit.fence());
    let printed = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    printed.map_err(|error| Ended::new(1, format!("the permit was released: the output cannot be written: {error}")))
}
