//! The server memory that a holder and a waiter take.

use crate::figure::{Figure, Limit};
use crate::server::Server;
use crate::wire::Script;
use redis::{Commands, Connection};

/// The size of the three keys of a semaphore, in bytes.
fn bytes(con: &mut Connection, keys: &[&str]) -> f64 {
    let usage = keys.iter().map(|key| {
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        usage.query::<Option<f64>>(con).unwrap().unwrap_or(0.0)
    });
    usage.sum()
}

/// The bytes of a holder and a waiter, with `count` of each, and of a member of a plain sorted set.
pub struct Each {
    pub holder: f64,
    pub waiter: f64,
    bare: f64,
}

pub fn each(con: &mut Connection, server: &Server, count: usize) -> Each {
    let acquire = Script::of_manifest(con, "semaphore/acquire");
    // As long as the crate's inboxes: a channel, and the secret of a wait.
    let inbox = "luagate:inbox:zS3Kq_0aB#9fXk2LmQ7sTuV";
    let mut take = |name: &str, limit: &str, wait_ms: &str, before: usize| {
        let keys = server.keys(&format!("{name}:{count}"));
        let ask = |con: &mut Connection| {
            let id = uuid::Uuid::new_v4().to_string();
            let arguments = [&*id, "1", limit, "600000", wait_ms, inbox, "0"];
            acquire.call(&keys.list(), &arguments).exec(con).unwrap();
        };
        (0..before).for_each(|_| ask(con));
        let empty = bytes(con, &keys.list());
        (0..count).for_each(|_| ask(con));
        (bytes(con, &keys.list()) - empty) / count as f64
    };
    let holder = take("held", &count.to_string(), "0", 0);
    let waiter = take("waiting", "1", "600000", 1);
    let bare = format!("{}:bare:{count}", server.prefix);
    for n in 0..count {
        let id = uuid::Uuid::new_v4().to_string();
        con.zadd::<_, _, _, ()>(&bare, id, 1_795_205_203_248_u64 + n as u64).unwrap();
    }
    Each { holder, waiter, bare: bytes(con, &[&bare]) / count as f64 }
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let mut con = server.connection();
    let figure = |what: &str, ours: f64, name: &'static str, theirs: f64, most: f64| Figure {
        what: what.to_owned(),
        unit: "bytes",
        ours,
        beside: (name, theirs),
        ratio: ours / theirs,
        limit: Limit::AtMost(most),
    };
    let few = each(&mut con, server, 100);
    let many = each(&mut con, server, 20_000);
    vec![
        figure("a holder, of 100", few.holder, "the limit", 130.0, 1.0),
        figure("a waiter, of 100", few.waiter, "the limit", 250.0, 1.0),
        figure("a holder, of 20,000", many.holder, "a member of a sorted set", many.bare, 2.0),
        figure("a waiter, of 20,000", many.waiter, "the limit", 320.0, 1.0),
    ]
}
