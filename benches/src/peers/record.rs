//! What came out: a record for each peer and scene, as JSON and as a page.

use super::peer::{PEERS, Peer};
use super::scene::{SCENES, Scene};
use serde_json::{Value, json};
use std::fmt::Write;

/// A peer in a scene. There are no figures where it did not finish.
pub struct Record {
    pub peer: &'static Peer,
    pub scene: &'static Scene,
    pub figures: Option<Figures>,
    pub note: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub pairs_per_second: f64,
    /// In the round in which there were fewest: how far the rounds are apart.
    pub slowest_round: f64,
    pub server_cpu_us_per_pair: f64,
    pub commands_per_pair: f64,
    pub wait_p50_ms: Option<f64>,
    pub wait_p99_ms: Option<f64>,
    pub longest_wait_ms: Option<f64>,
    pub violations: usize,
}

impl Figures {
    /// Those of the round with the most pairs a second, but the least processor time of any, and all violations.
    pub fn best(rounds: &[Figures]) -> Option<Figures> {
        let pairs = |figures: &&Figures| figures.pairs_per_second;
        let best = rounds.iter().max_by(|a, b| pairs(a).total_cmp(&pairs(b)))?;
        let cpu = rounds.iter().map(|f| f.server_cpu_us_per_pair);
        let pairs = rounds.iter().map(|f| f.pairs_per_second);
        Some(Figures {
            slowest_round: pairs.fold(f64::INFINITY, f64::min),
            server_cpu_us_per_pair: cpu.fold(f64::INFINITY, f64::min),
            violations: rounds.iter().map(|f| f.violations).sum(),
            ..*best
        })
    }
}

impl Record {
    fn json(&self, server: &str) -> Value {
        let figure = |pick: fn(&Figures) -> Option<f64>| {
            let value = self.figures.as_ref().and_then(pick);
            value.map(|value| (value * 1e3).round() / 1e3)
        };
        json!({
            "peer": self.peer.name,
            "language": self.peer.language.name(),
            "version": self.peer.version(),
            "server": server,
            "scene": self.scene.name,
            "pairs_per_second": figure(|f| Some(f.pairs_per_second)),
            "slowest_round_pairs_per_second": figure(|f| Some(f.slowest_round)),
            "server_cpu_us_per_pair": figure(|f| Some(f.server_cpu_us_per_pair)),
            "commands_per_pair": figure(|f| Some(f.commands_per_pair)),
            "wait_p50_ms": figure(|f| f.wait_p50_ms),
            "wait_p99_ms": figure(|f| f.wait_p99_ms),
            "longest_wait_ms": figure(|f| f.longest_wait_ms),
            "violations": self.figures.map(|f| f.violations),
            "less": self.peer.differs,
            "note": self.note,
        })
    }

    /// A row of its scene's table.
    fn row(&self) -> String {
        let Some(figures) = self.figures else {
            return format!("| {} | {} | {} |", self.peer.name, self.peer.language.name(), ["—"; 8].join(" | "));
        };
        let cells = [
            amount(Some(figures.pairs_per_second)),
            amount(Some(figures.slowest_round)),
            amount(Some(figures.server_cpu_us_per_pair)),
            amount(Some(figures.commands_per_pair)),
            amount(figures.wait_p50_ms),
            amount(figures.wait_p99_ms),
            amount(figures.longest_wait_ms),
            figures.violations.to_string(),
        ];
        format!("| {} | {} | {} |", self.peer.name, self.peer.language.name(), cells.join(" | "))
    }
}

/// As many digits as say something.
fn amount(value: Option<f64>) -> String {
    match value {
        None => "".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// A list of objects, one on each line.
pub fn list(records: &[Record], server: &str) -> String {
    let lines: Vec<String> = records.iter().map(|r| r.json(server).to_string()).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

const COLUMNS: &str = "| | | pairs/s | slowest round | server µs a pair | commands a pair | free to inside, p50 ms | p99 ms | longest wait ms \
                       | violations |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";

pub fn page(records: &[Record], server: &str) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().nth(2).unwrap_or("not known");
    let mut page = format!(
        "# luagate beside what one might pick instead\n\n\
         Written by `./dev bench peers`, on {server} and {cores} cores, which the server and the program share. Each peer has a \
         small program in its own language, configured as its documentation has it; the [README](README.md) says how each, and \
         how the figures are made. All workers of a scene are threads or tasks of that one program. They play in turns, \
         three times over, and the best round counts, and of processor time the least, since whatever else the machine does \
         can only slow them. Where the slowest round is far from the best, the order of two peers may be chance.\n\n\
         The machine's load in the last quarter of an hour was {load}. Where that is far above its cores, others took a part of \
         them, unevenly: then pairs a second, waits and processor time compare only roughly, commands a pair still well.\n\n\
         *Free to inside* is how long a permit was free while somebody waited for it: from the instant before the release to \
         the instant at which the next one is inside. Peers without a line often look good there while workers that ask again \
         at once overtake those that wait: then look at the *longest wait* of one worker, and at what the waiting costs the \
         server. luagate does more in each script than a plain lock (line, fence, lease, check of its own state), which the \
         uncontended scene shows at its full price; what that buys shows in the longest wait.\n"
    );
    page.push_str(&tables(records));
    page.push_str("\n## What they do less than luagate, or more\n\n| | version | |\n|---|---|---|\n");
    for peer in PEERS.iter().filter(|peer| !peer.differs.is_empty()) {
        let version = peer.version().unwrap_or_default();
        let _ = writeln!(page, "| {} | {version} | {} |", peer.name, peer.differs);
    }
    page
}

/// A table for each scene.
pub fn tables(records: &[Record]) -> String {
    let mut page = String::new();
    for scene in &SCENES {
        let _ = write!(page, "\n## {}\n\n{COLUMNS}", scene.title);
        let mut notes = String::new();
        for record in records.iter().filter(|r| r.scene.name == scene.name) {
            let _ = writeln!(page, "{}", record.row());
            if !record.note.is_empty() {
                let _ = writeln!(notes, "- {}: {}", record.peer.name, record.note);
            }
        }
        if !notes.is_empty() {
            let _ = write!(page, "\n{notes}");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_round_counts_with_the_violations_of_all() {
        let round = |pairs_per_second, server_cpu_us_per_pair, violations| Figures {
            pairs_per_second,
            slowest_round: pairs_per_second,
            server_cpu_us_per_pair,
            commands_per_pair: 1.0 / pairs_per_second,
            wait_p50_ms: None,
            wait_p99_ms: None,
            longest_wait_ms: None,
            violations,
        };
        let best = Figures::best(&[round(2.0, 30.0, 1), round(4.0, 20.0, 0), round(3.0, 10.0, 2)]).unwrap();
        assert_eq!(best.pairs_per_second, 4.0);
        assert_eq!(best.slowest_round, 2.0);
        assert_eq!(best.commands_per_pair, 0.25);
        assert_eq!(best.server_cpu_us_per_pair, 10.0);
        assert_eq!(best.violations, 3);
        assert!(Figures::best(&[]).is_none());
    }
}
