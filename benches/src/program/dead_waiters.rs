//! How late a permit is granted after a process has ended that held it and had other waiters in line: from
//! the end of its lease to the grant to the first live waiter. And how often waiters ask while the holder
//! lives.

use luagate::scripts::semaphore::{self, AcquireAnswer, Ask};
use luagate::{Gate, Lease};
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::server::Server;
use luagate_benches::wire::take_scripts;
use redis::Connection;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 5;
const LEASE_MS: u64 = 1_000;

/// How many dead waiters are ahead, the lease of the live waiter in seconds, and the maximum time from the
/// end of the lease of the holder to the grant in ms.
const LINES: [(usize, u64, f64); 9] = [
    (0, 1, 100.0),
    (2, 1, 100.0),
    (5, 1, 100.0),
    (20, 1, 100.0),
    (20, 30, 100.0),
    (100, 1, 1_000.0),
    (100, 30, 1_000.0),
    (1_000, 1, 1_000.0),
    (10_000, 1, 1_000.0),
];

/// How long a line of live waiters is observed, and the lease of the holder.
const HEALTHY: [(usize, u64); 3] = [(100, 5_000), (100, 30_000), (1_000, 5_000)];
const OBSERVED: Duration = Duration::from_secs(30);

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// The time in ms from the end of the lease to the grant. The server sees of a process that has ended that it
/// renews no lease, and that nobody subscribes to the channel of its waiters.
fn lateness(
    server: &Server,
    gate: &Gate,
    con: &mut Connection,
    dead: usize,
    lease: u64,
    round: usize,
) -> f64 {
    let name = format!("dead:{dead}:{lease}:{round}");
    let keys = server.keys(&name);
    let ask = Ask { id: "holder", limit: 1, lease_ms: LEASE_MS, ..Ask::default() };
    assert!(matches!(semaphore::acquire(con, &keys, &ask), Ok(AcquireAnswer::Granted(..))));
    let renew = |con: &mut Connection| {
        let renewed = semaphore::refresh(con, &keys, "holder", LEASE_MS, None).unwrap();
        renewed.and_then(|grant| grant.expires_at).expect("the lease has not ended") as f64
    };
    for number in 0..dead {
        let id = format!("dead-{number}");
        let ask = Ask { id: &id, inbox: "nobody", wait_ms: 15_000, ..ask };
        assert!(matches!(semaphore::acquire(con, &keys, &ask), Ok(AcquireAnswer::Queued { .. })));
        if number % 500 == 0 {
            renew(con);
        }
    }
    let semaphore = gate.semaphore(&name, 1).lease(Lease::fixed(Duration::from_secs(lease)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let permit = semaphore.acquire_timeout(Duration::from_secs(60)).unwrap();
            let granted = now_ms();
            drop(permit);
            granted
        });
        for _ in 0..=round {
            thread::sleep(Duration::from_millis(LEASE_MS / 3));
            renew(con);
        }
        let end = renew(con);
        waiter.join().unwrap() - end
    })
}

/// The calls per second of this many live waiters, while the holder renews its lease.
fn calls(server: &Server, gate: &Gate, con: &mut Connection, waiters: usize, lease_ms: u64) -> f64 {
    let name = format!("healthy:{waiters}:{lease_ms}");
    let lease = luagate::Lease::renewed(Duration::from_millis(lease_ms));
    let cancel = luagate::Cancel::new();
    let semaphore = gate.semaphore(&name, 1).lease(lease).cancelled_by(&cancel);
    let renewing = server.gate();
    let held = renewing.semaphore(&name, 1).lease(lease).acquire().unwrap();
    let calls = thread::scope(|scope| {
        for _ in 0..waiters {
            thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn_scoped(scope, || semaphore.acquire().err())
                .unwrap();
            thread::sleep(Duration::from_secs(5) / waiters as u32);
        }
        take_scripts(con);
        let begun = Instant::now();
        thread::sleep(OBSERVED);
        let calls = take_scripts(con).0;
        cancel.cancel();
        calls / begun.elapsed().as_secs_f64()
    });
    held.release().unwrap();
    calls
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let gate = server.gate();
    let mut con = server.connection();
    let mut figures = Vec::new();
    for (dead, lease, most) in LINES {
        let late: Vec<f64> =
            (0..ROUNDS).map(|round| lateness(server, &gate, &mut con, dead, lease, round)).collect();
        let longest = late.iter().copied().fold(f64::NAN, f64::max);
        figures.push(Figure {
            what: format!("longest time from the end of the lease of a process that has ended to the grant for {lease} s, {dead} of its waiters in line"),
            unit: "ms",
            ours: longest,
            beside: ("the bound", most),
            ratio: longest / most,
            limit: Limit::AtMost(1.0),
        });
    }
    for (waiters, lease_ms) in HEALTHY {
        let calls = calls(server, &gate, &mut con, waiters, lease_ms);
        let once = waiters as f64 / 5.0;
        figures.push(Figure {
            what: format!("calls per second of {waiters} waiters, renewed lease of {} s", lease_ms / 1_000),
            unit: "calls",
            ours: calls,
            beside: ("each once in 5 s", once),
            ratio: calls / once,
            limit: Limit::AtMost(1.1),
        });
    }
    figures
}
