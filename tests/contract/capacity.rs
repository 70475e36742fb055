//! Promise: a semaphore, a holder, a waiter and an idle connection use no more of the server's memory than
//! the guide says. A grant adds no more to the append-only file and the replication stream than the guide
//! says.

use crate::own;
use crate::support::raw::{Listener, Raw};
use crate::support::{SOON, Server, within};

use luagate::scripts::semaphore::Ask;

/// The memory of the three keys, in bytes.
fn memory(raw: &mut Raw) -> u64 {
    let keys = raw.key_names();
    let of = |key: String| {
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        usage.query::<Option<u64>>(&mut raw.con).unwrap().unwrap_or(0)
    };
    keys.map(of).iter().sum()
}

fn id(n: u32) -> String {
    format!("{}-{n}", uuid::Uuid::new_v4())
}

/// The memory of the semaphore alone, and then per holder and per waiter, with `count` of each.
fn measure(server: &Server, count: u32) -> [u64; 3] {
    let mut raw = Raw::named(server, &format!("market:account:{count}"), count);
    raw.grant(raw.ask("first"));
    raw.release("first");
    let alone = memory(&mut raw);
    for n in 0..count {
        let id = id(n);
        raw.grant(Ask { lease_ms: 600_000, ..raw.ask(&id) });
    }
    let held = memory(&mut raw);
    let inbox = format!("luagate:inbox:{}#{}", uuid::Uuid::new_v4(), uuid::Uuid::new_v4().simple());
    for n in 0..count {
        let id = id(n);
        raw.queue(Ask { lease_ms: 600_000, wait_ms: 600_000, inbox: &inbox, ..raw.ask(&id) });
    }
    let waited = memory(&mut raw);
    let each = |more: u64| more / u64::from(count);
    [alone, each(held - alone), each(waited - held)]
}

#[test]
fn memory_of_a_semaphore_a_holder_and_a_waiter_is_bounded() {
    let server = Server::any();
    // The first waiter makes the server change the encoding of all records. The new encoding needs more
    // memory.
    for (count, holder_most, waiter_most) in
        [(1, 300, 700), (5, 300, 450), (100, 300, 400), (1_000, 300, 400), (10_000, 300, 400)]
    {
        let [alone, holder, waiter] = measure(&server, count);
        println!("{count}: {alone} bytes with nobody, {holder} for a holder, {waiter} for a waiter");
        assert!(alone <= 250, "{alone} bytes");
        assert!(holder <= holder_most, "{holder} bytes for a holder of {count}");
        assert!(waiter <= waiter_most, "{waiter} bytes for a waiter of {count}");
    }
}

/// A field of the server's INFO.
fn reported(con: &mut redis::Connection, what: &str) -> String {
    let info: String = redis::cmd("INFO").query(con).unwrap();
    let of = |line: &str| Some(line.strip_prefix(what)?.strip_prefix(':')?.trim().to_owned());
    info.lines().find_map(of).unwrap()
}

/// The size of the append-only file. Replicas receive the same data.
fn appended(raw: &mut Raw) -> u64 {
    reported(&mut raw.con, "aof_current_size").parse().unwrap()
}

#[test]
fn data_appended_by_a_grant_a_renewal_and_a_wait_is_bounded() {
    // With its own fsync every second, the server may delay appending.
    let server = own!(Server::private(&["--appendonly", "yes", "--appendfsync", "no"]));
    let mut raw = Raw::named(&server, "market:account:1", 1);
    let mut inbox = Listener::new(&server, &uuid::Uuid::new_v4().to_string());
    const COUNT: u64 = 1_000;
    let mut each = |what: &mut dyn FnMut(&mut Raw, &str)| {
        what(&mut raw, &id(0)); // without what only the first call writes
        let before = appended(&mut raw);
        for n in 0..COUNT as u32 {
            what(&mut raw, &id(n));
        }
        (appended(&mut raw) - before) / COUNT
    };
    let grant = each(&mut |raw, id| {
        raw.grant(raw.ask(id));
        raw.assert_released(id);
    });
    let in_line = each(&mut |raw, id| {
        raw.grant(raw.ask("first"));
        raw.queue(Ask {
            wait_ms: 15_000,
            inbox: &format!("{}#{}", inbox.channel, uuid::Uuid::new_v4().simple()),
            ..raw.ask(id)
        });
        raw.assert_released("first");
        assert_eq!(inbox.next_grant()[0], id);
        raw.assert_released(id);
    });
    let renewal = each(&mut |raw, _| {
        raw.acquire(raw.ask("first")); // once; from then on the call finds it held
        assert!(raw.refresh("first", 30_000).is_some());
    });
    println!(
        "{grant} bytes for a grant and its release, {in_line} for two, one of them in line, {renewal} for a renewal"
    );
    assert!(grant <= 900 && in_line <= 2_500 && renewal <= 250);
}

#[test]
fn memory_of_an_idle_connection_is_bounded() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let mut used = || reported(&mut con, "used_memory").parse::<u64>().unwrap();
    const COUNT: u64 = 200;
    let before = used();
    let idle: Vec<_> = (0..COUNT).map(|_| server.connection()).collect();
    let is_old = reported(&mut server.connection(), "redis_version").starts_with("6.");
    let most = if is_old { 18_000 } else { 3_000 };
    let mut each = 0;
    // The server shrinks the buffers that it allocated for the first call.
    let shrunk = within(2 * SOON, || {
        each = used().saturating_sub(before) / COUNT;
        (each <= most).then_some(())
    });
    println!("{each} bytes for an idle connection");
    assert!(shrunk.is_some(), "{each} bytes");
    drop(idle);
}
