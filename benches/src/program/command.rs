//! The cost of the command `luagate run`, for a permit that is free.

use luagate_benches::figure::{Figure, Limit};
use luagate_benches::rounds::{compare, median};
use luagate_benches::server::Server;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 101;
const ROUND_TRIPS: u32 = 3;

/// What `luagate run` may add to the command and the round trips.
const MORE: Duration = Duration::from_millis(5);

/// `./dev bench` builds it into the folder of this program.
fn luagate() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let luagate = own.with_file_name("luagate");
    assert!(luagate.is_file(), "cargo build --release -p luagate-cli");
    luagate
}

fn ms(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1e3
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success());
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let mut con = server.connection();
    let round_trips = (0..ROUNDS).map(|_| ms(|| redis::cmd("PING").exec(&mut con).unwrap()));
    let round_trips = median(round_trips) * f64::from(ROUND_TRIPS);
    let luagate = luagate();
    let mut under_permit = Command::new(&luagate);
    under_permit.args(["run", "-n", "5", "command", "--", "true"]);
    under_permit.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix);
    let (more, mut alone) = (MORE.as_secs_f64() * 1e3, Command::new("true"));
    let costs =
        compare(ROUNDS, || ms(|| run(&mut under_permit)), || ms(|| run(&mut alone)) + round_trips + more);
    vec![Figure {
        what: "`luagate run -n 5 NAME -- true`".to_owned(),
        unit: "ms",
        ours: costs.ours,
        beside: ("`true`, three round trips and 5 ms", costs.theirs),
        ratio: costs.ratio,
        limit: Limit::AtMost(1.0),
    }]
}
