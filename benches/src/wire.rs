//! Calls as they are sent, many in a packet, so that the server is measured and not the connection.

use crate::rounds::{Compared, compare};
use redis::{Cmd, Connection, Pipeline};
use serde_json::Value;
use std::cell::RefCell;
use std::path::Path;

/// A file of the scripts.
fn read(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// The scripts of the manifest, by their names.
pub fn manifest() -> Value {
    let mut manifest: Value = serde_json::from_str(&read("manifest.json")).unwrap();
    manifest["scripts"].take()
}

/// A loaded script.
#[derive(Clone)]
pub struct Script {
    sha1: String,
}

impl Script {
    /// A script of the manifest.
    pub fn of_manifest(con: &mut Connection, name: &str) -> Script {
        let manifest = manifest();
        Script::load(con, &read(manifest[name]["file"].as_str().unwrap()))
    }

    pub fn load(con: &mut Connection, text: &str) -> Script {
        let sha1 = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(con).unwrap();
        Script { sha1 }
    }

    pub fn sha1(&self) -> &str {
        &self.sha1
    }

    pub fn call(&self, keys: &[&str], arguments: &[&str]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha1).arg(keys.len()).arg(keys).arg(arguments);
        call
    }
}

/// The server time for this number of scripts of each packet, in µs, measured in turns.
pub fn compare_us(
    con: &mut Connection,
    rounds: usize,
    scripts: f64,
    ours: &Pipeline,
    theirs: &Pipeline,
) -> Compared {
    let con = RefCell::new(con);
    let us = |packet: &Pipeline| scripts * script_us(&mut con.borrow_mut(), packet);
    compare(rounds, || us(ours), || us(theirs))
}

/// The server time of a script in µs, by the server's own statistics.
fn script_us(con: &mut Connection, packet: &Pipeline) -> f64 {
    take_scripts(con);
    packet.exec(con).unwrap();
    let (calls, us) = take_scripts(con);
    us / calls
}

/// How many scripts ran since the last call, and for how many µs.
pub fn take_scripts(con: &mut Connection) -> (f64, f64) {
    let info: String = redis::cmd("INFO").arg("commandstats").query(con).unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(con).unwrap();
    let counts = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let Some((calls, rest)) = counts.and_then(|counts| counts.split_once(",usec=")) else {
        return (0.0, 0.0);
    };
    let us = rest.split(',').next().unwrap_or_default();
    (calls.parse().unwrap(), us.parse().unwrap())
}
