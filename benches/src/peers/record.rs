//! The results: a record for each peer and scene, as JSON and as a page.

use super::peer::{PEERS, Peer};
use super::scene::{SCENES, Scene};
use serde_json::{Value, json};
use std::fmt::Write;

/// The result of a peer in a scene. There are no figures if it did not finish.
pub struct Record {
    pub peer: &'static Peer,
    pub scene: &'static Scene,
    pub figures: Option<Figures>,
    pub note: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub pairs_per_second: f64,
    /// In the slowest round: shows how much the rounds differ.
    pub slowest_round: f64,
    pub server_cpu_us_per_pair: f64,
    pub commands_per_pair: f64,
    pub wait_p50_ms: Option<f64>,
    pub wait_p99_ms: Option<f64>,
    pub longest_wait_ms: Option<f64>,
    pub violations: usize,
}

impl Figures {
    /// The figures of the round with the most pairs per second, with the least processor time of any round,
    /// and the violations of all rounds.
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

    /// A row in the table of its scene.
    fn row(&self) -> String {
        let Some(figures) = self.figures else {
            return format!(
                "| {} | {} | {} |",
                self.peer.name,
                self.peer.language.name(),
                ["—"; 8].join(" | ")
            );
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

/// A number with its significant digits.
fn amount(value: Option<f64>) -> String {
    match value {
        None => "".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// A JSON list with one object per line.
pub fn list(records: &[Record], server: &str) -> String {
    let lines: Vec<String> = records.iter().map(|r| r.json(server).to_string()).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

const COLUMNS: &str = "| | | pairs/s | slowest round | server µs per pair | commands per pair | free to held, p50 ms | p99 ms | longest wait ms \
                       | violations |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";

pub fn page(records: &[Record], server: &str) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().nth(2).unwrap_or("unknown");
    let mut page = format!(
        "# luagate compared with other libraries\n\n\
         Written by `./dev bench peers`, on {server} and {cores} cores, which the server and the program share. \
         Each peer has a small program in its own language, configured as its documentation recommends. The \
         [README](README.md) lists the configurations and explains the figures. All workers of a scene are threads \
         or tasks of that one program. The peers take turns, in three rounds. The best round counts, and the lowest \
         processor time of any round, because other load on the machine can only slow a peer. If the slowest round \
         is far from the best, the order of two peers may be chance.\n\n\
         The machine's load in the last quarter of an hour was {load}. If that is far above its cores, other \
         programs took an uneven part of them. Then pairs per second, waits and processor time are only rough \
         values; commands per pair are still comparable.\n\n\
         *Free to held* is the time that a permit was free while a worker waited for it: from the instant before \
         its release to the instant at which the next worker has it. Peers without a line often have good values \
         there, because workers that ask again at once overtake those that wait. For them see the *longest wait* of \
         a worker, and the cost of waiting for the server. luagate does more in each script than a plain lock \
         (line, fence, lease, check of its own state). The uncontended scene shows the full cost of that, the \
         longest wait shows the benefit.\n"
    );
    page.push_str(&tables(records));
    page.push_str(
        "\n## Missing and additional features compared with luagate\n\n| | version | |\n|---|---|---|\n",
    );
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
