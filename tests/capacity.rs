//! Promise: a semaphore, a holder and a waiter take no more of the server's memory than the guide says.

mod support;

use luagate::scripts::semaphore::Ask;
use support::Server;
use support::raw::Raw;

/// What the three keys take, in bytes.
fn memory(raw: &mut Raw) -> u64 {
    let keys = raw.key_names();
    let of = |key: String| {
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        usage
            .query::<Option<u64>>(&mut raw.con)
            .unwrap()
            .unwrap_or(0)
    };
    keys.map(of).iter().sum()
}

fn id(n: u32) -> String {
    format!("{}-{n}", uuid::Uuid::new_v4())
}

/// What it takes with nobody, and then for each of so many that hold and so many that wait.
fn measure(server: &Server, count: u32) -> [u64; 3] {
    let mut raw = Raw::named(server, &format!("market:account:{count}"), count);
    raw.grant(raw.ask("first"));
    raw.release("first");
    let alone = memory(&mut raw);
    for n in 0..count {
        let id = id(n);
        raw.grant(Ask {
            lease_ms: 600_000,
            ..raw.ask(&id)
        });
    }
    let held = memory(&mut raw);
    let inbox = format!(
        "luagate:inbox:{}#{}",
        uuid::Uuid::new_v4(),
        uuid::Uuid::new_v4().simple()
    );
    for n in 0..count {
        let id = id(n);
        raw.queue(Ask {
            lease_ms: 600_000,
            wait_ms: 600_000,
            inbox: &inbox,
            ..raw.ask(&id)
        });
    }
    let waited = memory(&mut raw);
    let each = |more: u64| more / u64::from(count);
    [alone, each(held - alone), each(waited - held)]
}

#[test]
fn what_a_semaphore_a_holder_and_a_waiter_take() {
    let server = Server::any();
    // The first waiter makes the server keep all records in another form, which takes more.
    for (count, holder_most, waiter_most) in [
        (1, 300, 700),
        (5, 300, 450),
        (100, 300, 400),
        (1_000, 300, 400),
        (10_000, 300, 400),
    ] {
        let [alone, holder, waiter] = measure(&server, count);
        println!(
            "{count}: {alone} bytes with nobody, {holder} for a holder, {waiter} for a waiter"
        );
        assert!(alone <= 250, "{alone} bytes");
        assert!(
            holder <= holder_most,
            "{holder} bytes for a holder of {count}"
        );
        assert!(
            waiter <= waiter_most,
            "{waiter} bytes for a waiter of {count}"
        );
    }
}
