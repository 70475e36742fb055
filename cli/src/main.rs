//! The command `luagate`: runs commands under a permit, shows holders and waiters, and takes permits away.

// These macros panic if the output cannot be written. `output` has functions that do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod acquire;
mod address;
mod args;
mod completions;
mod doctor;
mod ended;
mod export;
mod held;
mod inspect;
mod label;
mod latch;
mod list;
mod man;
mod manage;
mod output;
mod password_file;
mod release;
mod run;
mod sample;
mod table;
mod top;
mod unreadable;
mod words;

use args::{Args, Command, OwnCommand};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};
use ended::{Ended, NOT_EXECUTABLE, USAGE};
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Ok(own) = OwnCommand::try_parse() {
        return end(carry_out_own(own));
    }
    address::hide_password();
    let matches = match Args::command().try_get_matches_from(arguments()) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => {
            let error = to_show(error);
            output::to_stderr(move || drop(error.print()));
            return ExitCode::from(USAGE);
        }
        Err(help) => return end(output::written(help.print()).map(|()| 0)),
    };
    let ended = Args::from_arg_matches(&matches).map_err(|error| Ended::usage(error.to_string()));
    end(ended.and_then(|args| carry_out(args, &matches)))
}

/// The arguments. `luagate help run` means `luagate run --help`.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = env::args_os().collect();
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

/// The error of wrong arguments as it is shown: an argument in it may contain a password, or characters of
/// another client that a terminal carries out.
fn to_show(error: clap::Error) -> clap::Error {
    let shown =
        arguments().into_iter().map(|argument| output::visible(&address::without_password(&argument)));
    let again = Args::command().try_get_matches_from(shown).err();
    again.filter(clap::Error::use_stderr).unwrap_or(error)
}

/// Writes the message of an error. Returns the exit status.
fn end(result: Result<u8, Ended>) -> ExitCode {
    let status = result.unwrap_or_else(|Ended { status, message, signal }| {
        if let Some(message) = message {
            output::warn(message);
        }
        signal.inspect(|signal| run::end_by(*signal));
        status
    });
    ExitCode::from(status)
}

/// Returns the exit status.
fn carry_out_own(command: OwnCommand) -> Result<u8, Ended> {
    match command {
        OwnCommand::Guard => run::guard(),
        OwnCommand::Launch { parent, unblock, command } => run::launch(parent, unblock, &command),
        OwnCommand::Keeper { .. } => acquire::keep(),
    }
}

/// Returns the exit status.
fn carry_out(Args { server, command, .. }: Args, matches: &clap::ArgMatches) -> Result<u8, Ended> {
    let own = matches.subcommand().map_or(matches, |(_, own)| own); // clap has checked that there is one
    match command {
        Command::Run(args) => needs_processes().and_then(|()| run::run(&server, args, own, false)),
        Command::Try(args) => {
            refuse_waiting(own)?;
            needs_processes().and_then(|()| run::run(&server, args, own, true))
        }
        Command::Acquire(args) => needs_processes().and_then(|()| acquire::acquire(&server, args, own)),
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
        Command::Completions { shell } => completions::script(shell),
        Command::Complete { index, words } => completions::complete(index, words),
        Command::Man { folder } => man::man(&folder),
    }
}

/// Linux shows processes in /proc: this program, to start it again, and those of a command.
fn needs_processes() -> Result<(), Ended> {
    if cfg!(target_os = "linux") && Path::new("/proc/self/exe").symlink_metadata().is_err() {
        return Err(Ended::new(NOT_EXECUTABLE, "/proc is missing here. Mount it: mount -t proc proc /proc"));
    }
    Ok(())
}

/// `luagate try` does not wait, so these options would have no effect. Its help does not show them.
fn refuse_waiting(matches: &clap::ArgMatches) -> Result<(), Ended> {
    let is_given = |option: &str| matches.value_source(option) == Some(ValueSource::CommandLine);
    match [("wait", "--wait"), ("max_waiting", "--max-waiting")].iter().find(|(id, _)| is_given(id)) {
        Some((_, option)) => {
            Err(Ended::usage(format!("try: it does not wait. Accepted: `luagate run` with {option}")))
        }
        None => Ok(()),
    }
}
