//! Measures the cost of luagate: `./dev bench`. Writes `benches/RESULTS.md`, and charts to `docs/charts/`.
//!
//! `./dev bench WORD...` measures only what has one of these words in its title, and writes nothing. `./dev
//! bench peers` measures other libraries, see `peers`.

mod autocomplete;
mod backlog;
mod bulk;
mod chapter6;
mod command;
mod dead_waiters;
mod flood;
mod growth;
mod handover;
mod latency;
mod priority;
mod threads;
mod throughput;
mod waiting;

use luagate_benches::chart::{self, Chart};
use luagate_benches::figure::{self, Figure};
use luagate_benches::server::Server;
use luagate_benches::{client, memory, over_tcp, peers, script_instructions, script_time, tasks, waiters};
use std::path::Path;

/// The figures and charts that are measured together, on a separate server.
type Measured = (Vec<Figure>, Vec<Chart>);
type Measure = fn(&Server) -> Measured;

const MEASURES: [(&str, Measure); 20] = [
    ("script time", |server| (script_time::measure(server), vec![])),
    ("instructions", |_| (script_instructions::measure(), vec![])),
    ("throughput", |server| (throughput::measure(server), vec![])),
    ("growth", |server| (growth::measure(server), vec![])),
    ("backlog", |server| (backlog::measure(server), vec![])),
    ("memory", |server| (memory::measure(server), vec![])),
    ("client", |server| (client::measure(server), vec![])),
    ("threads", |server| (threads::measure(server), vec![threads::chart(server)])),
    ("tasks", |server| (tasks::measure(server), vec![])),
    ("tasks", |server| (waiting::measure(server), vec![])),
    ("command", |server| (command::measure(server), vec![])),
    ("bulk", |server| (bulk::measure(server), vec![])),
    ("hand-over", |server| (handover::measure(server), vec![])),
    ("latency", |server| (vec![], vec![latency::chart(server)])),
    ("waiters", waiters::measure),
    ("dead waiters", |server| (dead_waiters::measure(server), vec![])),
    ("priority", |server| (priority::measure(server), vec![])),
    ("flood", |server| (flood::measure(server), vec![])),
    ("Redis in Action", |server| (chapter6::measure(server), vec![])),
    ("autocomplete", |server| (autocomplete::measure(server), vec![])),
];

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if handover::work(&words) || waiting::work(&words) {
        return Ok(());
    }
    if let Some((first, names)) = words.split_first()
        && first == "peers"
    {
        return peers::run(names);
    }
    let is_wanted = |title: &str| words.is_empty() || words.iter().any(|word| title.contains(word.as_str()));
    let (mut figures, mut charts) = (Vec::new(), Vec::new());
    for (title, measure) in MEASURES.iter().filter(|(title, _)| is_wanted(title)) {
        let server = over_tcp().expect("no redis-server or valkey-server on the PATH");
        let (measured, drawn) = measure(&server);
        for figure in measured {
            println!("{figure}");
            figures.push((*title, figure));
        }
        for chart in &drawn {
            println!("{chart}");
        }
        charts.extend(drawn);
    }
    if words.is_empty() {
        let server = over_tcp().expect("the server's binary has disappeared");
        std::fs::write("benches/RESULTS.md", figure::page(&server, &figures))?;
        charts.extend(peers::charts(Path::new("benches/peers/results.json"))?);
        chart::write(&charts)?;
    }
    Ok(())
}
