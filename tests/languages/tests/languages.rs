//! Promise: the scripts work unchanged in other languages. The client of each language passes every case of
//! `lua/conformance/` and installs from its README alone. Processes in all languages share one semaphore.

#[path = "../../support/mod.rs"]
mod support;

#[path = "../faults/mod.rs"]
mod faults;

mod languages {
    pub mod alone;
    pub mod caller;
    pub mod examples;
    pub mod language;
    pub mod limits;
    pub mod line;
    pub mod pages;
    pub mod readme;
    pub mod renewal;
    pub mod stays;
    pub mod team;
    pub mod together;
    pub mod worker;
}

use languages::language::Language;
use languages::{alone, examples, limits, line, pages, readme, renewal, together, worker};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use support::Server;

/// A private server on a TCP port.
fn server() -> Server {
    Server::private_tcp(&[]).expect("a server, because its binary was found")
}

/// A test. With a reason, it is reported as ignored.
fn trial(
    name: String,
    missing: Option<&str>,
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let trial = Trial::test(name, test);
    match missing {
        Some(why) => trial.with_kind(format!("skipped: {why}")).with_ignored_flag(true),
        None => trial,
    }
}

fn main() -> ExitCode {
    if let Some((job, arguments)) = support::job() {
        match &*job {
            faults::rust::THREADS | faults::rust::TASKS => faults::rust::drive(&job),
            language => worker::work(language, &arguments),
        }
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Fewer than other test programs: programs in these languages need more of the processors.
    let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|count| count.parse::<usize>().ok());
    arguments.test_threads = arguments.test_threads.or(threads.map(|count| (count * 2).div_ceil(3)));
    let no_server = Server::private(&[]).is_none().then_some("no redis-server or valkey-server");
    let languages = Language::all();
    let mut trials = Vec::new();
    for package in readme::PACKAGES {
        let language = languages.iter().find(|language| language.name == package);
        let missing = language.and_then(|language| language.missing.clone());
        let name = format!("{package}::first_program_works_in_an_empty_folder");
        let test = move || readme::first_program_works_in_an_empty_folder(package);
        trials.push(trial(name, missing.as_deref().or(no_server), test));
        let name = format!("{package}::examples_of_the_pages_run");
        let test = move || pages::examples_of_the_pages_run(package);
        trials.push(trial(name, missing.as_deref().or(no_server), test));
        if package == "java" {
            let name = format!("{package}::example_of_the_counters_runs");
            let test = pages::example_of_the_counters_runs;
            trials.push(trial(name, missing.as_deref().or(no_server), test));
        }
    }
    for language in &languages {
        let missing = language.missing.as_deref().or(no_server);
        let some = alone::IN_SOME.into_iter().filter(|(_, _, names)| names.contains(&language.name));
        let some = some.map(|(name, test, _)| (name, test));
        let all = alone::TESTS.into_iter().chain(limits::TESTS).chain(line::TESTS).chain(renewal::TESTS);
        for (name, test) in all.chain(some) {
            let (name, language) = (format!("{}::{name}", language.name), language.clone());
            trials.push(trial(name, missing, move || test(&language)));
        }
    }
    for (name, missing, test) in examples::cases(&languages) {
        trials.push(trial(name, missing.as_deref().or(no_server), test));
    }
    trials.extend(faults::trials(&languages, no_server));
    let here: Vec<Language> = languages.into_iter().filter(|language| language.missing.is_none()).collect();
    for (name, test) in together::TESTS {
        let here = here.clone();
        trials.push(trial(format!("together::{name}"), no_server, move || test(&here)));
    }
    let code = libtest_mimic::run(&arguments, trials).exit_code();
    faults::pool::end();
    code
}
