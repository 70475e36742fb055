//! Promise: a fault that the Rust library survives, every client survives. See `README.md`.

#[path = "../../support/mod.rs"]
mod support;

#[path = "../tests/languages/language.rs"]
mod language;

mod access;
mod calls;
mod client;
mod driver;
mod ending;
mod failover;
mod parity;
mod process;
mod rust;
mod scene;
mod silence;
mod subscription;
mod table;
mod work;

use client::Client;
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some((form, _)) = support::job() {
        rust::drive(&form);
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let no_server = support::Server::private(&[]).is_none().then_some("no redis-server or valkey-server");
    let mut trials = Vec::new();
    let clients = Client::all();
    let all = clients.clone();
    trials.push(Trial::test("the_table_of_the_faults_is_up_to_date", move || parity::is_current(&all)));
    for client in clients {
        for fault in table::FAULTS.iter().chain(&table::MORE) {
            if client.name != client.base() && !fault.on_oldest {
                continue;
            }
            if table::exception(fault.name, &client).is_some() {
                continue; // in the table of `clients/README.md`
            }
            let (of, test) = (client.clone(), fault.test);
            let trial = Trial::test(format!("{}::{}", client.name, fault.name), move || test(&of));
            trials.push(match client.missing().or(no_server) {
                Some(why) => trial.with_kind(format!("skipped: {why}")).with_ignored_flag(true),
                None => trial,
            });
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
