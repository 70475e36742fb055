//! The percentiles of the duration of calls.

use crate::handover::{self, Times};
use luagate::Lease;
use luagate_benches::chart::{Axis, Chart, Line, Lines, log_axis};
use luagate_benches::client::{Raw, pairs};
use luagate_benches::server::Server;
use redis::Commands;
use std::time::{Duration, Instant};

const CALLS: usize = 10_000;

/// Each point is based on at least this number of slower calls.
const SLOWEST: f64 = 10.0;

/// The number of points per factor of ten of the slower calls.
const POINTS: i32 = 16;

/// The duration that one in n calls exceeds, by n.
fn curve(name: &'static str, mut us: Vec<f64>) -> Line {
    us.sort_by(f64::total_cmp);
    let points = (0..)
        .map(|at| 10_f64.powf(f64::from(at) / f64::from(POINTS)))
        .take_while(|beyond| beyond * SLOWEST <= us.len() as f64 * 1.001)
        .map(|beyond| {
            let rank = us.len() as f64 * (1.0 - 1.0 / beyond);
            (beyond, us[(rank as usize).min(us.len() - 1)])
        });
    Line { name, points: points.collect(), is_reference: false }
}

fn us(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_secs_f64() * 1e6
}

pub fn chart(server: &Server) -> Chart {
    let semaphore = server.gate().semaphore("latency", 100).lease(Lease::fixed(Duration::from_secs(30)));
    let mut raw = Raw::new(server, "raw");
    let mut con = server.connection();
    let key = format!("{}:set", server.prefix);
    let mut times = [(); 3].map(|()| Vec::new());
    let [by_crate, sent_raw, set] = &mut times;
    for _ in 0..CALLS {
        by_crate.push(us(|| pairs(&semaphore, 1)));
        sent_raw.push(us(|| raw.pairs(1)));
        set.push(us(|| con.set(&key, "value").unwrap()));
    }
    let [by_crate, sent_raw, set] = times;
    let Times { handed, reported, .. } = handover::times(server);
    let lines = vec![
        curve("acquire + release by the crate", by_crate),
        curve("the same scripts sent raw", sent_raw),
        curve("SET, one round trip", set),
        curve("release to running waiter, another process", handed),
        curve("message that wakes a thread there", reported),
    ];
    let all = lines.iter().flat_map(|line| &line.points);
    let y = log_axis("µs", all.map(|point| point.1));
    let x = [(1.0, "0 %"), (2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %")];
    Lines {
        file: "latency.svg",
        title: "Duration by percentile of the calls",
        x: Axis {
            label: "percentile",
            ticks: x.map(|(tick, text)| (tick, text.to_owned())).into(),
            is_log: true,
        },
        y,
        lines,
        has_marks: false,
    }
    .chart()
}
