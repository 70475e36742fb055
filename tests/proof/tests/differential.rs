//! Promise: the server in memory is a Redis. The same random calls go to it and to a real server, and answers, messages and all
//! that is kept afterwards are the same; so what a simulation on it shows holds for Redis and Valkey.
//!
//! `LUAGATE_PROVE=long` runs twenty times as many, from a seed by the clock; `LUAGATE_SEED` runs one again.

#[path = "differential/answer.rs"]
mod answer;
#[path = "differential/calls.rs"]
mod calls;
#[path = "differential/commands.rs"]
mod commands;
#[path = "differential/pair.rs"]
mod pair;
#[path = "differential/proof.rs"]
mod proof;
#[path = "differential/scripts.rs"]
mod scripts;
#[path = "../../support/mod.rs"]
mod support;

use commands::Commands;
use proof::prove;
use scripts::Scripts;

#[test]
fn every_command_answers_and_keeps_the_same() {
    prove(&mut Commands::new(), "commands", 600);
}

#[test]
fn every_script_answers_tells_and_keeps_the_same() {
    prove(&mut Scripts::new(), "scripts", 300);
}
