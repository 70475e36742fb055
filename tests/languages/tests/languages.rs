//! Promise: the scripts serve other languages as they are. The client of each passes every case of `lua/conformance/`, and
//! processes in all of them share one semaphore.

#[path = "../../support/mod.rs"]
mod support;

mod languages {
    pub mod alone;
    pub mod caller;
    pub mod language;
    pub mod limits;
    pub mod page;
    pub mod shell;
    pub mod stays;
    pub mod team;
    pub mod together;
    pub mod worker;
}

use languages::language::Language;
use languages::{alone, limits, page, shell, together, worker};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use support::Server;

/// A server of the test's own, which speaks TCP.
fn server() -> Server {
    Server::private_tcp(&[]).expect("looked for before")
}

/// A test, or why it is not run.
fn trial(name: String, missing: Option<&str>, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let trial = Trial::test(name, test);
    match missing {
        Some(why) => trial.with_kind(format!("skipped: {why}")).with_ignored_flag(true),
        None => trial,
    }
}

fn main() -> ExitCode {
    if let Some((_, arguments)) = support::job() {
        worker::work(&arguments);
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let no_server = Server::private(&[]).is_none().then_some("no redis-server or valkey-server");
    let languages = Language::all();
    let mut trials = vec![Trial::test("page", page::shows_the_examples)];
    for language in &languages {
        let missing = language.missing.as_deref().or(no_server);
        for (name, test) in alone::TESTS.into_iter().chain(limits::TESTS) {
            let (name, language) = (format!("{}::{name}", language.name), language.clone());
            trials.push(trial(name, missing, move || test(&language)));
        }
    }
    for shell in shell::SHELLS {
        let no_shell = shell::missing(shell);
        for (name, test) in shell::tests() {
            let missing = no_shell.as_deref().or(no_server);
            let name = format!("with_permit::{shell}::{name}");
            trials.push(trial(name, missing, move || test(shell)));
        }
    }
    let here: Vec<Language> = languages.into_iter().filter(|language| language.missing.is_none()).collect();
    for (name, test) in together::TESTS {
        let here = here.clone();
        trials.push(trial(format!("together::{name}"), no_server, move || test(&here)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
