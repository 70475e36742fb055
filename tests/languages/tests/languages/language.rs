//! A language, with its client and what runs it.

use std::process::Command;

/// The folder of the project.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// What `prepare` ends with where the machine lacks the language.
const MISSING: i32 = 77;

const NAMES: [&str; 4] = ["python", "javascript", "go", "java"];

#[derive(Clone)]
pub struct Language {
    pub name: &'static str,
    /// Why it cannot be run on this machine.
    pub missing: Option<String>,
}

impl Language {
    /// All of them, with their packages there and their programs built.
    pub fn all() -> Vec<Language> {
        let preparing = NAMES.map(|name| std::thread::spawn(move || Language::prepare(name)));
        preparing.map(|thread| thread.join().unwrap()).into()
    }

    fn prepare(name: &'static str) -> Language {
        let output = Command::new(format!("{FOLDER}/{name}/prepare")).output();
        let output = output.unwrap_or_else(|error| panic!("{name}/prepare: {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let missing = match output.status.code() {
            Some(0) => None,
            Some(MISSING) => Some(text.trim().to_owned()),
            _ => panic!("{name}/prepare: {text}{}", String::from_utf8_lossy(&output.stderr)),
        };
        Language { name, missing }
    }

    /// A program of the language, in the project's folder.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(format!("{FOLDER}/{}/run", self.name));
        command.arg(program).args(arguments).current_dir(ROOT);
        command
    }
}
