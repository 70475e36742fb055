//! The market: at most five processes of one account may be inside at the same time.
//!
//! Twelve processes trade through one semaphore. One is killed while it holds a permit, one while it waits in
//! line. They are not restarted. The program shows the holders and waiters live. At the end it checks every
//! promise against a record of all entries and exits.
//!
//! ```sh
//! cargo run --example market    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! `worker.rs` shows how to use luagate. The other files observe and check.

mod audit;
mod day;
mod record;
mod screen;
mod worker;
mod workers;

use luagate::Gate;
use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const MARKET: &str = "market:account:17";
const LIMIT: u32 = 5;
const WORKERS: usize = 12;

/// The lease: how long a permit is held if its holder does not release it.
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

/// Opens a gate with a prefix for this run only, so that two runs on one server do not interfere.
fn open_gate(prefix: &str, label: &str) -> Outcome<Gate> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let gate = Gate::builder(&url).prefix(prefix).label(label).open();
    gate.map_err(|error| format!("{error}; set REDIS_URL to the address of the server").into())
}
