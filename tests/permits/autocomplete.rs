//! Promise: recent contacts and members of a group are found by their prefix, whatever bytes they contain. A search
//! changes nothing.

mod bytes;
mod contacts;
mod failures;
mod members;

use crate::support::Server;

use luagate::autocomplete::{Prefix, Recent};
use luagate::scripts::autocomplete;
use redis::Connection;

fn recent(server: &Server) -> Recent {
    Recent::new(&server.gate(), "ann")
}

fn group(server: &Server) -> Prefix {
    Prefix::new(&server.gate(), "guild")
}

fn recent_key(server: &Server) -> String {
    autocomplete::recent_key(&server.prefix, "ann").unwrap()
}

fn prefix_key(server: &Server) -> String {
    autocomplete::prefix_key(&server.prefix, "guild").unwrap()
}

#[track_caller]
fn assert_recent(recent: &Recent, prefix: &str, expected: &[&str]) {
    let found = recent.matching(prefix, 1_000).unwrap();
    assert_eq!(found, expected, "{prefix:?}");
}

#[track_caller]
fn assert_group(group: &Prefix, prefix: &str, expected: &[&str]) {
    let found = group.matching(prefix, 1_000).unwrap();
    assert_eq!(found, expected, "{prefix:?}");
}

/// Numbered names of equal length.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("member {n:06}")).collect()
}

/// The content of both keys, as bytes.
fn dump(server: &Server, con: &mut Connection) -> Vec<Option<Vec<u8>>> {
    [recent_key(server), prefix_key(server)].iter().map(|key| redis::cmd("DUMP").arg(key).query(con).unwrap()).collect()
}
