//! How many calls per second the server executes from 20 connections, compared with the simplest write, both
//! measured by redis-benchmark.

use luagate_benches::figure::{Figure, Limit};
use luagate_benches::rounds::compare;
use luagate_benches::script_time::BARE_ACQUIRE;
use luagate_benches::server::Server;
use luagate_benches::wire::Script;
use std::process::Command;

const ROUNDS: usize = 5;
const CALLS: &str = "100000";

/// So large that ids hardly repeat: a repeated id would only get the reply `held`.
const NUMBERS: &str = "1000000000";

/// Calls per second of a command in which `__rand_int__` is replaced by another number each time.
fn calls_a_second(server: &Server, command: &[&str]) -> f64 {
    let (host, port) = server.address().split_once(':').expect("host and port");
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args(["-h", host, "-p", port, "-c", "20", "-n", CALLS, "-r", NUMBERS, "--csv"]).args(command);
    let output = benchmark.output().expect("redis-benchmark is missing; it comes with the server");
    let text = String::from_utf8_lossy(&output.stdout);
    // "test","rps",... and then "SET ...","123456.78",...
    let row = text.lines().last().unwrap_or_default();
    let cell = row.split("\",\"").nth(1).unwrap_or_else(|| panic!("redis-benchmark says {text}"));
    cell.trim_matches('"').parse().unwrap()
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let acquire = Script::of_manifest(&mut server.connection(), "semaphore/acquire");
    let keys = server.keys("throughput");
    let [meta, holders, queue] = keys.list();
    let id = "0b7a40e5-6a3c-4d43-9a1f-__rand_int__";
    let ours =
        ["EVALSHA", acquire.sha1(), "3", meta, holders, queue, id, "1", "2147483647", "600000", "0", "", "0"];
    let bare = Script::load(&mut server.connection(), BARE_ACQUIRE);
    let key = format!("{}:throughput:bare", server.prefix);
    let barest = ["EVALSHA", bare.sha1(), "1", &key, id, "2147483647", "600000"];
    let key = format!("{}:set:__rand_int__", server.prefix);
    let set = ["SET", &key, "0b7a40e5-6a3c-4d43-9a1f-000000000000"];
    let beside_set = |what: &str, command: &[&str], limit| {
        let compared = compare(ROUNDS, || calls_a_second(server, command), || calls_a_second(server, &set));
        Figure {
            what: what.to_owned(),
            unit: "/s",
            ours: compared.ours,
            beside: ("`SET`", compared.theirs),
            ratio: compared.ratio,
            limit,
        }
    };
    vec![
        beside_set("acquire on many ids, from 20 connections", &ours, Limit::AtLeast(0.38)),
        beside_set("the same with the bare script", &barest, Limit::None),
    ]
}
