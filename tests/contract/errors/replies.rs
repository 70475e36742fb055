//! The errors with which scripts refuse a call, without the word `LUAGATE`.

use super::Printed;
use crate::support::Server;

use redis::{Commands, Connection};
use std::path::Path;

fn script(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua/dist");
    std::fs::read_to_string(folder.join(name).with_extension("lua")).unwrap()
}

struct Caller {
    con: Connection,
    prefix: String,
}

impl Caller {
    /// The error of a script, with keys of one hash tag.
    fn error(&mut self, printed: &mut Printed, name: &str, keys: &str, arguments: &[&str]) {
        let keys: Vec<String> = keys.split(' ').map(|key| format!("{}:{{t}}:{key}", self.prefix)).collect();
        self.error_of(printed, name, &keys, arguments);
    }

    fn error_of(&mut self, printed: &mut Printed, name: &str, keys: &[String], arguments: &[&str]) {
        let mut call = redis::cmd("EVAL");
        call.arg(script(name)).arg(keys.len()).arg(keys).arg(arguments);
        let error = call.exec(&mut self.con).unwrap_err();
        assert_eq!(error.code(), Some("LUAGATE"), "{name} {arguments:?}: {error}");
        printed.text(error.detail().unwrap());
    }
}

const KEYS: &str = "meta holders queue";

pub(super) fn print(printed: &mut Printed) {
    let server = Server::any();
    let mut caller = Caller { con: server.connection(), prefix: server.prefix.clone() };
    semaphores(printed, &mut caller);
    several(printed, &mut caller);
    let mut other = |name, keys, arguments: &[&str]| caller.error(printed, name, keys, arguments);
    other("latch/count", "latch", &[]);
    other("latch/count", "latch latch", &[]);
    other("latch/count", "latch waiters", &["1"]);
    other("latch/count_down", "latch waiters", &["a b", "1", "1"]);
    other("latch/wait", "latch waiters", &["0", "1", "1", ""]);
    other("autocomplete/prefix_add", "prefix", &["x"; 1_001]);
    other("autocomplete/recent_add", "a b", &["x", "1"]);
    other("autocomplete/recent_add", "recent", &["x", "0"]);
}

fn semaphores(printed: &mut Printed, caller: &mut Caller) {
    let right = ["id", "1", "1", "1000", "0", "", "0", "0", "0"];
    for (at, value) in
        [(0, ""), (1, "x"), (2, "-1"), (2, "0"), (4, "60001"), (5, "a b"), (5, "#secret"), (8, "x")]
    {
        let mut arguments = right;
        arguments[at] = value;
        caller.error(printed, "semaphore/acquire", KEYS, &arguments);
    }
    caller.error(printed, "semaphore/acquire", KEYS, &right[..6]);
    caller.error(printed, "semaphore/acquire", "meta", &right);
    caller.error(printed, "semaphore/acquire", "meta meta queue", &right);
    caller.error(printed, "semaphore/refresh", KEYS, &["id"]);
    caller.error(printed, "semaphore/release", KEYS, &["id"]);
    caller.error(printed, "semaphore/resize", KEYS, &["x", "-1"]);
    let keys = KEYS.split(' ').map(|key| format!("{}:{{t}}:{key}", caller.prefix));
    let keys: Vec<String> = keys.collect();
    let mut grant = redis::cmd("EVAL");
    grant.arg(script("semaphore/acquire")).arg(3).arg(&keys).arg(&right);
    grant.exec(&mut caller.con).unwrap();
    caller.error_of(printed, "semaphore/release", &keys, &["id", "2"]);
    let newer = vec![8_u8; 60];
    let _: () = caller.con.hset(&keys[0], "the state", newer).unwrap();
    caller.error_of(printed, "semaphore/lookup", &keys, &["id"]);
    // `holds` raises its error, which the server puts into another.
    let mut holds = redis::cmd("EVAL");
    holds.arg(script("semaphore/holds") + "\nreturn holds(KEYS[1], KEYS[2], 'id', '1')").arg(3).arg(&keys);
    let raised = holds.exec(&mut caller.con).unwrap_err().to_string();
    let (_, raised) = raised.split_once("LUAGATE ").unwrap();
    let end = "share a semaphore";
    printed.text(&raised[..raised.find(end).unwrap() + end.len()]);
}

fn several(printed: &mut Printed, caller: &mut Caller) {
    let one = ["id", "1", "1", "1000", "0"];
    let two = [&one[..], &one[1..]].concat();
    let name = "semaphore/try_acquire_several";
    caller.error(printed, name, "a b", &one);
    caller.error(printed, name, "a b c", &two);
    caller.error(printed, name, "a b c a d e", &two);
    caller.error(printed, name, "a b c", &["id", "x", "1", "1000", "0"]);
    caller.error(printed, name, "a b c", &["id", "1", "0", "1000", "0"]);
    let keys = ["{a}a", "{a}b", "{b}c"].map(|key| format!("{}:{key}", caller.prefix));
    caller.error_of(printed, name, &keys, &one);
}
