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
#[path = "differential/lua.rs"]
mod lua;
#[path = "differential/pair.rs"]
mod pair;
#[path = "differential/proof.rs"]
mod proof;
#[path = "differential/real_time.rs"]
mod real_time;
#[path = "differential/scripts.rs"]
mod scripts;
#[path = "../../support/server.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod support;

use commands::Commands;
use lua::Lua;
use proof::prove;
use real_time::RealTime;
use scripts::Scripts;

#[test]
fn every_command_answers_and_keeps_the_same() {
    prove(&mut Commands::new(), "commands", 600);
}

#[test]
fn every_script_answers_tells_and_keeps_the_same() {
    prove(&mut Scripts::new(), "scripts", 300);
}

#[test]
fn the_scripts_text_as_it_is_answers_the_same_in_real_time() {
    let mut layer = RealTime::new();
    prove(&mut layer, "real time", 60);
    let (compared, left_out) = (layer.compared, layer.left_out);
    println!("real time: {compared} calls compared, {left_out} sequences ended at one that none can decide");
    assert!(compared > left_out, "too noisy here to compare anything");
}

#[test]
fn lua_computes_and_replies_the_same() {
    prove(&mut Lua::new(), "lua", 300);
}
