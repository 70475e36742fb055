//! Promise: the clients work where people run them: bundlers, test runners, patched runtimes, frameworks.
//! Each folder `environments/LANGUAGE/NAME` is one environment. See `environments/README.md`.

#[path = "../../support/mod.rs"]
mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use support::Server;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/environments");

/// The folders in a folder, in the order of their names.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of this repository");
    let mut folders: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Installs the package of a language, as for its other tests. Returns the reason why this machine cannot run
/// it.
fn prepare(language: &Path) -> Option<String> {
    let name = language.file_name().expect("a name").display();
    let prepare = format!("{}/{name}/prepare", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(&prepare).output().expect("a program of this repository");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() || output.status.code() == Some(77), "{prepare}: {text}");
    (!output.status.success()).then(|| text.trim().to_owned())
}

/// A tool that the environment needs and that this machine lacks.
fn missing(environment: &Path) -> Option<String> {
    let needs = std::fs::read_to_string(environment.join("needs")).expect("a file `needs`");
    let is_missing = |tool: &&str| {
        !Command::new("sh").args(["-c", "command -v \"$0\"", tool]).output().unwrap().status.success()
    };
    needs.split_whitespace().find(is_missing).map(|tool| format!("needs {tool}"))
}

/// Runs the environment in a copy of its folder, with a server of its own.
fn run(environment: &Path) -> Result<(), Failed> {
    let server = Server::private_tcp(&[]).ok_or("no redis-server or valkey-server")?;
    let folder = tempfile::Builder::new().prefix("environment").tempdir()?;
    let copied = Command::new("cp").arg("-R").arg(environment.join(".")).arg(folder.path()).status()?;
    assert!(copied.success());
    let mut command = Command::new(folder.path().join("run"));
    command.current_dir(folder.path()).env("REDIS_URL", &server.url).env("LUAGATE_ROOT", support::root());
    let output = command.env(support::leftovers::MARK, support::leftovers::mark()).output()?;
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if output.status.code() == Some(77) {
        support::skip_since(texts[0].trim());
        return Ok(());
    }
    assert!(output.status.success(), "{}: {}", output.status, texts.join("\n"));
    Ok(())
}

fn main() -> ExitCode {
    let is_long = std::env::var("LUAGATE_PROVE").is_ok();
    let mut trials = Vec::new();
    for language in folders(Path::new(FOLDER)) {
        let is_run =
            |folder: &PathBuf| folder.join("run").exists() && (is_long || folder.join("brief").exists());
        let environments: Vec<PathBuf> = folders(&language).into_iter().filter(is_run).collect();
        let no_language = if environments.is_empty() { None } else { prepare(&language) };
        for environment in environments {
            let name = environment.strip_prefix(FOLDER).unwrap().display().to_string().replace('/', "::");
            let missing = no_language.clone().or_else(|| missing(&environment));
            let trial = Trial::test(name, move || run(&environment));
            trials.push(match missing {
                Some(why) => trial.with_kind(format!("skipped: {why}")).with_ignored_flag(true),
                None => trial,
            });
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
