//! What luagate costs: every figure is a ratio to something that is measured beside it in the same run, on the same server, in
//! turns, so that whatever else the machine does meets both alike; medians of several rounds. The program of this crate
//! measures all of it and writes `RESULTS.md` and the charts.

#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unused_macros, reason = "tests use more of it")]
pub mod server;
pub use server as support; // as the macro `own` calls it

#[path = "../../tests/support/counts.rs"]
pub mod counts;

pub mod autocomplete;
pub mod bars;
pub mod bulk;
pub mod calls;
pub mod chapter6;
pub mod chart;
pub mod client;
pub mod crowd;
pub mod distance;
pub mod figure;
pub mod flood;
pub mod growth;
pub mod handover;
pub mod instructions;
pub mod latency;
pub mod memory;
pub mod peers;
pub mod pool;
pub mod recorded;
pub mod rounds;
pub mod script_instructions;
pub mod script_time;
pub mod threads;
pub mod throughput;
pub mod version;
pub mod wire;

/// A server as programs meet it: over TCP, whoever connects.
pub fn over_tcp() -> Option<server::Server> {
    let mut server = server::Server::private_tcp(&[])?;
    server.client = redis::Client::open(server.url.as_str()).ok();
    Some(server)
}
