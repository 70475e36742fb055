//! The market: at most five processes of one account may be inside at a time.
//!
//! Twelve processes trade through one semaphore. One is killed while it holds a permit, one while it waits in line, and
//! none is restarted. All of it is shown live; at the end a record of every entry and exit tells whether every promise
//! was kept.
//!
//! ```sh
//! cargo run --example market    # REDIS_URL names the server; redis://127.0.0.1/ unless set
//! ```
//!
//! How luagate is used is in `worker.rs`. The rest watches.

mod audit;
mod crew;
mod day;
mod record;
mod screen;
mod worker;

use luagate::Gate;
use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const MARKET: &str = "market:account:17";
const LIMIT: u32 = 5;
const WORKERS: usize = 12;

/// How long a permit lives when its holder does not give it back.
const LEASE: Duration = Duration::from_secs(3);

const SHORTEST_STAY: Duration = Duration::from_millis(100);
const LONGEST_STAY: Duration = Duration::from_millis(400);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (who, outcome) = match arguments[..] {
        [] => ("market", day::run()),
        ["worker", name, prefix] => (name, worker::run(name, prefix)),
        _ => ("market", Err("takes no arguments".into())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{who}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A gate under a prefix of this run's own, so that two runs on one server do not meet.
fn open_gate(prefix: &str, label: &str) -> Outcome<Gate> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let gate = Gate::builder(&url).prefix(prefix).label(label).open();
    gate.map_err(|error| format!("{error}; REDIS_URL names the server").into())
}
