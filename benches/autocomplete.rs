//! What a search among 100,000 members costs the server, compared with one among 100: `cargo bench --bench autocomplete`.
//! Ends with a failure when it is more than twice as much.
//!
//! Runs on the server that REDIS_URL names, or on one of its own. The searches go there a thousand in a packet, so that
//! what is measured is the server, not the way to it.

#[path = "../tests/support/mod.rs"]
mod support;

use luagate::scripts::autocomplete;
use redis::{Connection, Pipeline};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use support::Server;

const ROUNDS: usize = 101;
const SEARCHES: usize = 1_000;
const FOUND: usize = 10;
const BOUND: f64 = 2.0;

/// A group of so many members, and a packet of searches all over it, each of which finds ten.
fn searches_among(con: &mut Connection, server: &Server, size: usize) -> Pipeline {
    let key = autocomplete::prefix_key(&server.prefix, &size.to_string()).unwrap();
    let members: Vec<String> = (0..size).map(|n| format!("member {n:06}")).collect();
    for part in members.chunks(1_000) {
        autocomplete::prefix_add(con, &key, part).unwrap();
    }
    let manifest: serde_json::Value =
        serde_json::from_str(include_str!("../lua/manifest.json")).unwrap();
    let sha1 = manifest["scripts"]["autocomplete/prefix_match"]["sha1"].as_str();
    let mut packet = redis::pipe();
    for n in 0..SEARCHES {
        // 7,919 is a prime: one search is far from the one before.
        let prefix = format!("member {:05}", n * 7_919 % (size / FOUND));
        let found = autocomplete::prefix_match(con, &key, &prefix, 1_000).unwrap();
        assert_eq!(found.len(), FOUND, "{prefix}");
        packet
            .cmd("EVALSHA")
            .arg(sha1.unwrap())
            .arg(1)
            .arg(&key)
            .arg(prefix)
            .arg(FOUND);
    }
    packet
}

fn time(con: &mut Connection, packet: &Pipeline) -> Duration {
    let start = Instant::now();
    packet.exec(con).unwrap();
    start.elapsed()
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6 / SEARCHES as f64
}

fn main() -> ExitCode {
    let server = Server::any();
    let mut con = server.connection();
    let few = searches_among(&mut con, &server, 100);
    let many = searches_among(&mut con, &server, 100_000);
    // In turns, so that whatever else the machine does meets both alike.
    let (few, many) = (0..ROUNDS)
        .map(|_| (time(&mut con, &few), time(&mut con, &many)))
        .unzip();
    let (few, many) = (median_us(few), median_us(many));
    let ratio = many / few;
    println!("a search that finds {FOUND}, median of {ROUNDS} rounds of {SEARCHES}:");
    println!("  among     100   {few:5.2} us");
    println!("  among 100,000   {many:5.2} us");
    println!("  ratio           {ratio:5.2}, at most {BOUND:.2}");
    if ratio > BOUND {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
