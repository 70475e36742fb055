//! Shows that neither many holders nor many waiters make a script slower.

use luagate_benches::figure::{Figure, Limit};
use luagate_benches::server::Server;
use luagate_benches::wire::{Script, compare_us};
use redis::{Connection, Pipeline};

const ROUNDS: usize = 21;
const PACKET: usize = 500;
const MOST: f64 = 1.5;

/// A semaphore with this number of holders and waiters. The waiters have no inbox and a deadline in a minute.
struct Filled {
    acquire: Script,
    release: Script,
    keys: [String; 3],
    limit: String,
}

impl Filled {
    fn new(
        con: &mut Connection,
        server: &Server,
        name: &str,
        holders: usize,
        waiters: usize,
        room: usize,
    ) -> Filled {
        let filled = Filled {
            acquire: Script::of_manifest(con, "semaphore/acquire"),
            release: Script::of_manifest(con, "semaphore/release"),
            keys: server.keys(name).list().map(str::to_owned),
            limit: (holders + room).to_string(),
        };
        let ids: Vec<String> = (0..holders + waiters).map(|_| new_id()).collect();
        for (place, part) in ids.chunks(1_000).enumerate() {
            let mut packet = redis::pipe();
            for (at, id) in part.iter().enumerate() {
                let waits = place * 1_000 + at >= holders;
                filled.acquire(&mut packet, id, if waits { "60000" } else { "0" });
            }
            packet.exec(con).unwrap();
        }
        filled
    }

    fn acquire(&self, packet: &mut Pipeline, id: &str, wait_ms: &str) {
        let keys = self.keys.each_ref().map(String::as_str);
        let arguments = [id, "1", &self.limit, "600000", wait_ms, "", "0"];
        packet.add_command(self.acquire.call(&keys, &arguments)).ignore();
    }

    /// A packet of acquires and releases, each with another id.
    fn pairs(&self, wait_ms: &str) -> Pipeline {
        let keys = self.keys.each_ref().map(String::as_str);
        let mut packet = redis::pipe();
        for _ in 0..PACKET {
            let id = new_id();
            self.acquire(&mut packet, &id, wait_ms);
            packet.add_command(self.release.call(&keys, &[&id, "0"])).ignore();
        }
        packet
    }
}

fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn figure(con: &mut Connection, what: &str, many: &Pipeline, few: &Pipeline) -> Figure {
    let compared = compare_us(con, ROUNDS, 2.0, many, few);
    Figure {
        what: what.to_owned(),
        unit: "µs",
        ours: compared.ours,
        beside: ("with 10", compared.theirs),
        ratio: compared.ratio,
        limit: Limit::AtMost(MOST),
    }
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let mut con = server.connection();
    let few = Filled::new(&mut con, server, "few", 10, 0, 1).pairs("0");
    let many = Filled::new(&mut con, server, "many", 100_000, 0, 1).pairs("0");
    let holders = figure(&mut con, "acquire + release with 100,000 holders", &many, &few);
    let few = Filled::new(&mut con, server, "few-in-line", 1, 10, 0).pairs("60000");
    let many = Filled::new(&mut con, server, "many-in-line", 1, 10_000, 0).pairs("60000");
    let waiters = figure(&mut con, "join + leave the line with 10,000 waiters", &many, &few);
    vec![holders, waiters]
}
