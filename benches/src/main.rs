//! Measures what luagate costs: `./dev bench`. Every figure is a ratio to something that is measured beside it in the same
//! run, on the same server, in turns, so that whatever else the machine does meets both alike; medians of several rounds. Writes
//! `benches/RESULTS.md`.
//!
//! `./dev bench WORD...` measures only what has one of these words in its title, and writes nothing. `./dev bench peers` is about
//! other libraries, see `peers`.

#[path = "../../tests/support/counts.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod counts;
#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unused_macros, reason = "tests use more of it")]
mod server;

mod autocomplete;
mod chapter6;
mod client;
mod crowd;
mod figure;
mod growth;
mod handover;
mod memory;
mod peers;
mod rounds;
mod script_time;
mod throughput;
mod wire;

use figure::Figure;
use server::Server;

/// What is measured together, on a server of its own.
type Measure = fn(&Server) -> Vec<Figure>;

const MEASURES: [(&str, Measure); 9] = [
    ("script time", script_time::measure),
    ("throughput", throughput::measure),
    ("growth", growth::measure),
    ("memory", memory::measure),
    ("client", client::measure),
    ("hand-over", handover::measure),
    ("crowd", crowd::measure),
    ("Redis in Action", chapter6::measure),
    ("autocomplete", autocomplete::measure),
];

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if handover::work(&words) {
        return Ok(());
    }
    if let Some((first, names)) = words.split_first()
        && first == "peers"
    {
        return peers::run(names);
    }
    let is_wanted =
        |title: &str| words.is_empty() || words.iter().any(|word| title.contains(word.as_str()));
    let mut figures = Vec::new();
    for (title, measure) in MEASURES.iter().filter(|(title, _)| is_wanted(title)) {
        let server = Server::private(&[]).expect("a redis-server or valkey-server on the PATH");
        for figure in measure(&server) {
            println!("{figure}");
            figures.push((*title, figure));
        }
    }
    if words.is_empty() {
        let server = Server::private(&[]).expect("there was one before");
        std::fs::write("benches/RESULTS.md", figure::page(&server, &figures))?;
    }
    Ok(())
}
