//! Shows that a search among many members costs the server as much as a search among few.

use luagate::scripts::autocomplete;
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::server::Server;
use luagate_benches::wire::{Script, compare_us};
use redis::{Connection, Pipeline};

const ROUNDS: usize = 101;
const SEARCHES: usize = 1_000;
const FOUND: usize = 10;

/// Stores a group of this size, and returns a packet of searches all over it, each of which finds ten
/// members.
fn searches_among(con: &mut Connection, server: &Server, size: usize) -> Pipeline {
    let key = autocomplete::prefix_key(&server.prefix, &size.to_string()).unwrap();
    let members: Vec<String> = (0..size).map(|n| format!("member {n:06}")).collect();
    for part in members.chunks(1_000) {
        autocomplete::prefix_add(con, &key, part).unwrap();
    }
    let search = Script::of_manifest(con, "autocomplete/prefix_match");
    let mut packet = redis::pipe();
    for n in 0..SEARCHES {
        // 7,919 is a prime: consecutive searches are far apart.
        let prefix = format!("member {:05}", n * 7_919 % (size / FOUND));
        let found = autocomplete::prefix_match(con, &key, &prefix, 1_000).unwrap();
        assert_eq!(found.len(), FOUND, "{prefix}");
        packet.add_command(search.call(&[&key], &[&prefix, &FOUND.to_string()])).ignore();
    }
    packet
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let mut con = server.connection();
    let few = searches_among(&mut con, server, 100);
    let many = searches_among(&mut con, server, 100_000);
    let compared = compare_us(&mut con, ROUNDS, 1.0, &many, &few);
    vec![Figure {
        what: "a search that finds 10 of 100,000 members".to_owned(),
        unit: "µs",
        ours: compared.ours,
        beside: ("of 100 members", compared.theirs),
        ratio: compared.ratio,
        limit: Limit::AtMost(2.0),
    }]
}
