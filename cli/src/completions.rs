//! Completions for a shell. Its script calls `luagate complete`, so that the names on the server are among
//! them.

use crate::address::ServerArgs;
use crate::args::{Args, Shell};
use crate::ended::Ended;
use crate::output;
use clap::{Command, CommandFactory, FromArgMatches};
use clap_complete::CompletionCandidate;
use clap_complete::engine::{ArgValueCompleter, complete as candidates};
use luagate::admin;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

/// How long the user waits for names.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most names that are offered.
const MOST: usize = 200;

/// The arguments that are names.
const NAMES: [&str; 3] = ["names", "name", "patterns"];

/// Prints the script for a shell.
pub fn script(shell: Shell) -> Result<u8, Ended> {
    output::exactly(match shell {
        Shell::Bash => include_str!("../completions/luagate.bash"),
        Shell::Zsh => include_str!("../completions/luagate.zsh"),
        Shell::Fish => include_str!("../completions/luagate.fish"),
    })?;
    Ok(0)
}

/// Prints what can replace the word with this index, and its meaning, on a line each.
pub fn complete(index: usize, words: Vec<OsString>) -> Result<u8, Ended> {
    let server = server(&words);
    let names = move |begin: &str| server.as_ref().map(|server| stored(server, begin)).unwrap_or_default();
    output::exactly(&lines(index, words, names)?)?;
    Ok(0)
}

/// What can replace the word with this index, and its meaning, on a line each. `names`: those on the server
/// that begin so.
pub fn lines(
    index: usize,
    words: Vec<OsString>,
    names: impl Fn(&str) -> BTreeSet<String> + Clone + Send + Sync + 'static,
) -> Result<String, Ended> {
    let mut command = Args::command();
    let subcommands: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in subcommands.iter().filter(|name| *name != "latch") {
        let names = names.clone();
        command = command.mut_subcommand(name, |subcommand| with_names(subcommand, names));
    }
    let found = candidates(&mut command, words, index, None)?;
    // The internal subcommands are hidden, and so are the options of all subcommands, which are useful.
    let is_offered = |candidate: &&CompletionCandidate| {
        index > 1 || !candidate.is_hide_set() || candidate.get_value().as_encoded_bytes().starts_with(b"-")
    };
    // The word that was typed may begin the candidate, and it may contain a tab.
    let is_line = |candidate: &&CompletionCandidate| {
        !candidate.get_value().to_string_lossy().contains(char::is_control)
    };
    let lines = found.iter().filter(is_offered).filter(is_line).map(|candidate| {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        format!("{}\t{}\n", candidate.get_value().display(), help.lines().next().unwrap_or_default())
    });
    Ok(lines.collect())
}

/// The server that the words name, or the environment.
fn server(words: &[OsString]) -> Option<ServerArgs> {
    let matches = Args::command().ignore_errors(true).try_get_matches_from(words).ok()?;
    ServerArgs::from_arg_matches(&matches).ok()
}

fn with_names(
    command: Command,
    names: impl Fn(&str) -> BTreeSet<String> + Clone + Send + Sync + 'static,
) -> Command {
    let offered = move |begin: &OsStr| -> Vec<CompletionCandidate> {
        let found = names(&begin.to_string_lossy()).into_iter();
        found.filter(|name| is_plain(name)).map(CompletionCandidate::new).collect()
    };
    command.mut_args(move |arg| {
        if NAMES.contains(&arg.get_id().as_str()) {
            arg.add(ArgValueCompleter::new(offered.clone()))
        } else {
            arg
        }
    })
}

/// The names on the server that begin so. After an error none, since there is no place for a message.
fn stored(server: &ServerArgs, begin: &str) -> BTreeSet<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut found = BTreeSet::new();
    let Ok(builder) = server.builder() else { return found };
    let search =
        builder.connect_timeout(PATIENCE).read_timeout(PATIENCE).open().and_then(|gate| admin::names(&gate));
    let Ok(mut search) = search else { return found };
    while let Some(Ok(names)) = search.next_step()
        && found.len() < MOST
        && Instant::now() < deadline
    {
        let begun = names.into_iter().map(|name| name.name).filter(|name| name.starts_with(begin));
        found.extend(begun.take(MOST - found.len()));
    }
    found
}

/// Whether a shell takes the name as it is. Another client has chosen it, so it may contain a command.
fn is_plain(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_.:/@%+,".contains(letter);
    name.chars().all(is_plain) && !name.starts_with('-')
}
