//! Promise: the server in memory behaves like Redis. It receives the same random calls as a real server.
//! Replies, messages and all stored data are equal. Therefore the results of simulations on it hold for Redis
//! and Valkey.
//!
//! `LUAGATE_PROVE=long` runs twenty times as many calls, from a seed by the clock. `LUAGATE_SEED` repeats one
//! sequence.

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
fn every_command_replies_and_stores_the_same() {
    prove(&mut Commands::new(), "commands", 600);
}

#[test]
fn every_script_replies_publishes_and_stores_the_same() {
    prove(&mut Scripts::new(), "scripts", 300);
}

#[test]
fn unchanged_scripts_reply_the_same_in_real_time() {
    let mut layer = RealTime::new();
    prove(&mut layer, "real time", 60);
    let (compared, left_out) = (layer.compared, layer.left_out);
    println!("real time: {compared} calls compared, {left_out} sequences ended at an undecidable call");
    assert!(compared > left_out, "the machine is too slow to compare anything");
}

#[test]
fn lua_computes_and_replies_the_same() {
    prove(&mut Lua::new(), "lua", 300);
}
