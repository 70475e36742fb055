//! The man pages, made from the arguments.

use crate::args::Args;
use crate::ended::Ended;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use std::io::{self, Write};
use std::path::Path;

/// The date of this release, as in CHANGELOG.md. Not the date of the build, so that each build writes the
/// same pages.
const DATE: &str = "2026-11-27";

/// A term and its meaning.
type Entry = (&'static str, &'static str);

/// Writes a page for each command into this folder: `luagate.1`, `luagate-run.1`, ...
pub fn man(folder: &Path) -> Result<u8, Ended> {
    let mut command = Args::command();
    command.build();
    write(&command, folder).map_err(|error| {
        let text = format!("cannot write into {}: {error}", folder.display());
        if folder.is_dir() { Ended::new(1, text) } else { Ended::usage(text) }
    })?;
    Ok(0)
}

fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write(subcommand, folder)?;
    }
    let name = name(command);
    let mut page = Vec::new();
    render(command, &name, &mut page)?;
    std::fs::write(folder.join(format!("{name}.1")), page)
}

/// The name of the page, such as `luagate-latch-wait`.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn render(command: &Command, name: &str, page: &mut dyn Write) -> io::Result<()> {
    let is_main = name == "luagate";
    // The options of all commands are hidden in the help, whose lines are few.
    let shown = if is_main { command.clone().mut_args(|arg| arg.hide(false)) } else { command.clone() };
    let source = format!("luagate {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(shown).title(name.to_uppercase()).date(DATE).source(source).manual("luagate");
    man.render_title(page)?;
    man.render_name_section(page)?;
    let usage = command.clone().render_usage().to_string();
    section(page, "SYNOPSIS", &[usage.trim_start_matches("Usage: ")])?;
    let about = command.get_about().map(|about| format!("{about}.")).unwrap_or_default();
    section(
        page,
        "DESCRIPTION",
        &[about.as_str(), details(&help(command)), if is_main { GENERAL } else { ALL }],
    )?;
    man.render_options_section(page)?;
    if command.get_subcommands().any(|subcommand| !subcommand.is_hide_set()) {
        man.render_subcommands_section(page)?;
    }
    entries(page, "EXIT STATUS", statuses(name))?;
    entries(page, "ENVIRONMENT", &ENVIRONMENT)?;
    if ["luagate-run", "luagate-try"].contains(&name) {
        entries(page, "", &VARIABLES)?;
    }
    section(page, "SIGNALS", &[signals(name)])?;
    let help = help(command);
    let examples: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("Example: ")).collect();
    section(page, "EXAMPLES", &examples)?;
    section(page, "SEE ALSO", &[if is_main { "The guide: https://docs.rs/luagate" } else { "luagate(1)" }])
}

/// The text after the options.
fn help(command: &Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}

/// The part of it that has no section of its own.
fn details(help: &str) -> &str {
    let end = ["Status:", "Example:"].iter().filter_map(|word| help.find(word)).min();
    help.get(..end.unwrap_or(help.len())).unwrap_or_default().trim()
}

/// A section of paragraphs.
fn section(page: &mut dyn Write, title: &str, paragraphs: &[&str]) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (index, paragraph) in paragraphs.iter().filter(|paragraph| !paragraph.is_empty()).enumerate() {
        if index > 0 {
            roff.control("PP", None::<&str>);
        }
        roff.text([roman(*paragraph)]);
    }
    roff.to_writer(page)
}

/// A section of terms, or more of them without a title.
fn entries(page: &mut dyn Write, title: &str, entries: &[Entry]) -> io::Result<()> {
    let mut roff = Roff::new();
    if !title.is_empty() {
        roff.control("SH", [title]);
    }
    for (term, meaning) in entries {
        roff.control("TP", None::<&str>);
        roff.text([bold(*term)] as [Inline; 1]);
        roff.text([roman(*meaning)]);
    }
    roff.to_writer(page)
}

const GENERAL: &str =
    "A duration is a number and ms, s, m, h or d, such as 2.5s. Without a unit it is in seconds.";
const ALL: &str =
    "The options --url, --password-file, --prefix, --ca, --cert and --key of luagate(1) are accepted too.";

const ENVIRONMENT: [Entry; 4] = [
    (
        "LUAGATE_URL",
        "The server, if --url is not given. A URL with a password is not visible to other users here.",
    ),
    (
        "REDIS_URL",
        "The server, if neither --url nor LUAGATE_URL is given. Without all of them: redis://127.0.0.1/",
    ),
    (
        "LUAGATE_PASSWORD_FILE",
        "The file with the password, if --password-file is not given. The user is that of the URL.",
    ),
    ("LUAGATE_PREFIX", "The start of every key, if --prefix is not given. Without both: luagate"),
];

const VARIABLES: [Entry; 4] = [
    (
        "LUAGATE_NAME",
        "Set for COMMAND: the name. With several names, each of these has as many values, separated by spaces.",
    ),
    ("LUAGATE_ID", "Set for COMMAND: the id of the holder."),
    ("LUAGATE_FENCE", "Set for COMMAND: the fence of the permit."),
    ("LUAGATE_HELD", "Set for COMMAND: the ids of all permits around it."),
];

const USAGE: Entry = ("64", "An argument is not valid.");
const SERVER: Entry = ("69", "The server cannot be used.");
const WRITTEN: Entry = ("1", "The output cannot be written. A closed pipe is no error.");

const RUN: [Entry; 8] = [
    ("that of COMMAND, or signal n", "COMMAND has run. A shell shows signal n as 128 + n."),
    USAGE,
    SERVER,
    ("75, or that of -E", "No permit: the time is over, all are in use, or the line is full."),
    ("79", "The permit was lost, and COMMAND was ended."),
    ("126", "COMMAND cannot be run."),
    ("127", "COMMAND does not exist."),
    ("signal n", "Signal n ended the wait."),
];

fn statuses(name: &str) -> &'static [Entry] {
    match name {
        "luagate-run" | "luagate-try" => &RUN,
        "luagate-revoke" => &[("0", "All were taken away."), ("1", "An ID had nothing."), USAGE, SERVER],
        "luagate-resize" => &[
            ("0", "The limit was changed."),
            ("1", "The name is not stored, or the limit is not the expected one. Nothing was changed."),
            USAGE,
            SERVER,
        ],
        "luagate-doctor" => &[
            ("0", "All is well."),
            ("1", "There are warnings."),
            ("2", "Something is broken."),
            USAGE,
            SERVER,
        ],
        "luagate-top" => {
            &[("0", "The user ended it."), WRITTEN, USAGE, SERVER, ("128 + n", "Signal n ended it.")]
        }
        name if name.starts_with("luagate-latch") => {
            &[("0", "Success."), WRITTEN, USAGE, SERVER, ("75", "The latch did not open in time.")]
        }
        _ => &[("0", "Success."), WRITTEN, USAGE, SERVER],
    }
}

fn signals(name: &str) -> &'static str {
    match name {
        "luagate-run" | "luagate-try" => {
            "While it waits, INT, TERM, HUP and QUIT end it, and a signal that stops it takes it out of the line until it \
             continues. Then INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to COMMAND, unless a terminal \
             has sent them to both. If a signal has ended COMMAND or the wait, luagate ends by the same signal."
        }
        "luagate-top" => {
            "HUP, INT and TERM end it, and it restores the terminal. It also ends when the terminal goes."
        }
        "luagate-export" => "INT, TERM and HUP end it at once. Nothing is lost.",
        _ => "INT, TERM and HUP end it at once. What it has changed stays so.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_that_of_the_release() {
        let changelog = include_str!("../../CHANGELOG.md");
        let heading = format!("## [{}] - ", env!("CARGO_PKG_VERSION"));
        // Before the release there is no such line.
        if let Some(date) = changelog.lines().find_map(|line| line.strip_prefix(&*heading)) {
            assert_eq!(DATE, date);
        }
    }
}
