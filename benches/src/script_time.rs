//! The cost of a script for the server, compared with the bare semaphore: the simplest one on a sorted set.

use crate::figure::{Figure, Limit};
use crate::server::Server;
use crate::wire::{Script, compare_us};
use redis::{Connection, Pipeline};

const ROUNDS: usize = 21;

/// Pairs, or calls, in a packet.
const PACKET: usize = 1_000;

/// The bare semaphore: it counts and admits, without order, fence, weight or checks.
pub const BARE_ACQUIRE: &str = "local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
return 1";
pub const BARE_RELEASE: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";

const LEASE: &str = "30000";

/// The scripts of luagate, and the bare semaphore.
pub struct Scripts {
    pub acquire: Script,
    pub release: Script,
    pub refresh: Script,
    pub bare_acquire: Script,
    pub bare_release: Script,
    pub keys: [String; 3],
    pub bare_key: String,
}

impl Scripts {
    pub fn load(con: &mut Connection, server: &Server, name: &str) -> Scripts {
        let keys = server.keys(name);
        Scripts {
            acquire: Script::of_manifest(con, "semaphore/acquire"),
            release: Script::of_manifest(con, "semaphore/release"),
            refresh: Script::of_manifest(con, "semaphore/refresh"),
            bare_acquire: Script::load(con, BARE_ACQUIRE),
            bare_release: Script::load(con, BARE_RELEASE),
            keys: keys.list().map(str::to_owned),
            bare_key: format!("{}:bare:{{{name}}}", server.prefix),
        }
    }

    fn acquire(&self, packet: &mut Pipeline, id: &str, limit: &str) {
        let keys = self.keys.each_ref().map(String::as_str);
        packet.add_command(self.acquire.call(&keys, &[id, "1", limit, LEASE, "0", "", "0"])).ignore();
    }

    fn bare_acquire(&self, packet: &mut Pipeline, id: &str, limit: &str) {
        packet.add_command(self.bare_acquire.call(&[&self.bare_key], &[id, limit, LEASE])).ignore();
    }

    fn release(&self, packet: &mut Pipeline, id: &str) {
        let keys = self.keys.each_ref().map(String::as_str);
        packet.add_command(self.release.call(&keys, &[id, "0"])).ignore();
    }

    fn bare_release(&self, packet: &mut Pipeline, id: &str) {
        packet.add_command(self.bare_release.call(&[&self.bare_key], &[id])).ignore();
    }

    fn refresh(&self, packet: &mut Pipeline, id: &str) {
        let keys = self.keys.each_ref().map(String::as_str);
        packet.add_command(self.refresh.call(&keys, &[id, LEASE])).ignore();
    }
}

/// A packet of calls, each with another id.
fn packet(mut call: impl FnMut(&mut Pipeline, &str)) -> Pipeline {
    let mut packet = redis::pipe();
    for _ in 0..PACKET {
        call(&mut packet, &uuid::Uuid::new_v4().to_string());
    }
    packet
}

/// Measures both packets in turns. `scripts`: the number of scripts in one figure.
fn figure(
    con: &mut Connection,
    what: &str,
    scripts: f64,
    ours: &Pipeline,
    bare: &Pipeline,
    limit: f64,
) -> Figure {
    let compared = compare_us(con, ROUNDS, scripts, ours, bare);
    Figure {
        what: what.to_owned(),
        unit: "µs",
        ours: compared.ours,
        beside: ("the bare sorted set", compared.theirs),
        ratio: compared.ratio,
        limit: Limit::AtMost(limit),
    }
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let mut con = server.connection();
    let free = Scripts::load(&mut con, server, "free");
    let ours = packet(|packet, id| {
        free.acquire(packet, id, "5");
        free.release(packet, id);
    });
    let bare = packet(|packet, id| {
        free.bare_acquire(packet, id, "5");
        free.bare_release(packet, id);
    });
    let pair = figure(&mut con, "acquire + release, uncontended", 2.0, &ours, &bare, 2.5);

    let full = Scripts::load(&mut con, server, "full");
    let mut fill = redis::pipe();
    full.acquire(&mut fill, "holder", "1");
    full.bare_acquire(&mut fill, "holder", "1");
    fill.exec(&mut con).unwrap();
    let denied = packet(|packet, id| full.acquire(packet, id, "1"));
    let bare = packet(|packet, id| full.bare_acquire(packet, id, "1"));
    let refresh = packet(|packet, _| full.refresh(packet, "holder"));
    let refreshed = figure(&mut con, "refresh, compared with a denied acquire", 1.0, &refresh, &bare, 2.2);
    let denied = figure(&mut con, "acquire, denied", 1.0, &denied, &bare, 2.2);
    vec![pair, denied, refreshed]
}
