//! Promise: a fault that the Rust library survives, every client survives. See `README.md`.

mod access;
mod busy_client;
mod calls;
pub mod client;
mod cluster;
mod counters;
pub mod driver;
mod ending;
mod errors;
mod failover;
mod messages;
mod no_script;
mod parity;
pub mod pool;
mod posted;
mod process;
pub mod rust;
mod scene;
mod scripted;
mod sentinel;
mod several;
mod silence;
mod subscription;
mod suspend;
mod table;
mod traces;
mod work;

use crate::languages::language::{self, Language};
use crate::{support, trial};
use client::Client;
use libtest_mimic::Trial;

/// Every fault and every trace with every client. `no_server`: why none can run.
pub fn trials(languages: &[Language], no_server: Option<&str>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let clients = Client::all(languages);
    for client in &clients {
        for fault in table::FAULTS.iter().chain(&table::MORE) {
            let runs = fault.on_variants || client.runs_all();
            if !runs || table::exception(fault.name, client).is_some() {
                continue; // in the table of `clients/README.md`
            }
            let (client, test) = (client.clone(), fault.test);
            let missing = client.missing().map(str::to_owned);
            let name = format!("{}::{}", client.name, fault.name);
            trials.push(trial(name, missing.as_deref().or(no_server), move || test(&client)));
        }
    }
    for client in clients.iter().filter(|client| client.name == client.base()) {
        for trace in traces::all() {
            let (client, name) = (client.clone(), format!("{}::trace_{}", client.name, trace.test_name()));
            let missing = client.missing().map(str::to_owned);
            trials.push(trial(name, missing.as_deref().or(no_server), move || trace.play(&client)));
        }
    }
    let up_to_date = move || parity::is_current(&clients);
    trials.push(Trial::test("the_table_of_the_faults_is_up_to_date", up_to_date));
    trials
}
