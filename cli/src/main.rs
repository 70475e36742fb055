//! The command `luagate`: runs commands under a permit, shows holders and waiters, and takes permits away.

mod acquire;
mod address;
mod args;
mod doctor;
mod ended;
mod export;
mod inspect;
mod label;
mod latch;
mod list;
mod manage;
mod pages;
mod release;
mod run;
mod sample;
mod table;
mod top;

use args::{Args, Command};
use clap::{CommandFactory, FromArgMatches};
use ended::{Ended, USAGE};
use std::process::ExitCode;

fn main() -> ExitCode {
    address::hide_password();
    let matches = match Args::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let ended = Args::from_arg_matches(&matches).map_err(|error| Ended::usage(error.to_string()));
    match ended.and_then(|args| carry_out(args, &matches)) {
        Ok(status) => ExitCode::from(status),
        Err(Ended { status, message }) => {
            if let Some(message) = message {
                eprintln!("luagate: {message}");
            }
            ExitCode::from(status)
        }
    }
}

/// Returns the exit status.
fn carry_out(Args { server, command, .. }: Args, matches: &clap::ArgMatches) -> Result<u8, Ended> {
    let own = matches.subcommand().map_or(matches, |(_, own)| own); // clap has checked that there is one
    match command {
        Command::Run(args) => run::run(&server, args, own, false),
        Command::Try(args) => run::run(&server, args, own, true),
        Command::Guard => run::guard(),
        Command::Keeper { .. } => acquire::keep(),
        Command::Acquire(args) => acquire::acquire(&server, args, own),
        Command::Release(args) => release::release(&server, &args),
        Command::Refresh(args) => release::refresh(&server, &args),
        Command::Ls(args) => list::ls(&server, &args),
        Command::Inspect(args) => inspect::inspect(&server, &args),
        Command::Top(args) => top::top(&server, args),
        Command::Revoke(args) => manage::revoke(&server, &args),
        Command::Resize(args) => manage::resize(&server, &args),
        Command::Latch(args) => latch::latch(&server, &args),
        Command::Doctor(args) => doctor::doctor(&server, &args),
        Command::Export(args) => export::export(&server, args),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { folder } => pages::man(&folder),
    }
}
