//! Measures the cost of luagate. Every figure is a ratio to a comparison value, measured in turns in the same
//! run on the same server. So other load on the machine affects both alike. The figures are medians of
//! several rounds.
//!
//! The library has what the recorded costs and the charts need, which every run of the tests compiles. The
//! program, in `program`, measures everything else too, and writes `RESULTS.md` and the charts.

#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unused_macros, reason = "tests use more of it")]
pub mod server;
pub use server as support; // as the macro `own` calls it

#[path = "../../tests/support/counts.rs"]
pub mod counts;

pub mod bars;
pub mod calls;
pub mod chart;
pub mod client;
pub mod distance;
pub mod figure;
pub mod instructions;
pub mod memory;
pub mod peers;
pub mod recorded;
pub mod rounds;
pub mod script_instructions;
pub mod script_time;
pub mod tasks;
pub mod version;
pub mod waiters;
pub mod wire;

/// A server over TCP, for all connections.
pub fn over_tcp() -> Option<server::Server> {
    let mut server = server::Server::private_tcp(&[])?;
    server.client = redis::Client::open(server.url.as_str()).ok();
    Some(server)
}
