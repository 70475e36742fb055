//! A language: its client, and the programs that run it.

use crate::support::leftovers::{MARK, mark};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The folder of the project.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// The exit status of `prepare` if the machine lacks the language.
const MISSING: i32 = 77;

/// Each client: its name, its folder here and in `clients/`, and the prefix of its programs.
const CLIENTS: [(&str, &str, &str); 5] = [
    ("python", "python", ""),
    ("asyncio", "python", "aio_"),
    ("javascript", "javascript", ""),
    ("go", "go", ""),
    ("java", "java", ""),
];

#[derive(Clone)]
pub struct Language {
    pub name: &'static str,
    folder: &'static str,
    programs: &'static str,
    /// The reason why it cannot run on this machine.
    pub missing: Option<String>,
}

impl Language {
    /// All languages, with their packages installed and their programs built.
    pub fn all() -> Vec<Language> {
        let folders: BTreeSet<_> = CLIENTS.iter().map(|(_, folder, _)| *folder).collect();
        let preparing =
            folders.into_iter().map(|folder| (folder, std::thread::spawn(move || Language::prepare(folder))));
        let preparing: Vec<_> = preparing.collect();
        let missing: BTreeMap<_, _> =
            preparing.into_iter().map(|(folder, thread)| (folder, thread.join().unwrap())).collect();
        let languages = CLIENTS.map(|(name, folder, programs)| {
            let missing = missing[folder].clone();
            Language { name, folder, programs, missing }
        });
        languages.into()
    }

    /// Installs the package and builds the programs of a folder. Returns the reason why this machine cannot
    /// run them.
    fn prepare(folder: &str) -> Option<String> {
        let output = Command::new(format!("{FOLDER}/{folder}/prepare")).output();
        let output = output.unwrap_or_else(|error| panic!("{folder}/prepare: {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => None,
            Some(MISSING) => Some(text.trim().to_owned()),
            _ => panic!("{folder}/prepare: {text}{}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Runs a program of the language in the project's folder.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(format!("{FOLDER}/{}/run", self.folder));
        command.arg(format!("{}{program}", self.programs)).args(arguments).current_dir(ROOT);
        command.env(MARK, mark());
        command
    }
}
