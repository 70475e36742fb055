//! Charts of luagate and its peers, from `benches/peers/results.json` if that file exists.

use crate::bars::{Bars, Panel, Row};
use crate::chart::{Chart, thousands};
use serde_json::Value;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

const SCENES: [&str; 3] = ["uncontended", "50 on 5", "200 on 1"];

/// The name of a peer and its language. Each peer has a row per scene.
fn name(row: &Value) -> String {
    let text = |field: &str| row[field].as_str().unwrap_or("?").to_owned();
    let (peer, language) = (text("peer"), text("language"));
    match language.as_str() {
        _ if peer.to_lowercase().contains(&language.to_lowercase()) => peer,
        language => format!("{peer} ({language})"),
    }
}

/// The charts; none if nothing was measured.
pub fn charts(results: &Path) -> Result<Vec<Chart>> {
    let text = match std::fs::read_to_string(results) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let rows: Vec<Value> = serde_json::from_str(&text)
        .map_err(|error| Error::other(format!("{}: {error}", results.display())))?;
    let cpu = bars(
        &rows,
        "peers-cpu.svg",
        "Server CPU time per pair of acquire and release, in µs",
        &SCENES,
        "server_cpu_us_per_pair",
    );
    let wait = bars(
        &rows,
        "peers-wait.svg",
        "Time from a free permit to its next holder, 99th percentile, in ms",
        &SCENES[1..],
        "wait_p99_ms",
    );
    Ok([cpu, wait].into_iter().flatten().collect())
}

/// A chart of one field, with a panel for each scene; `None` if nothing was measured. The peer with the
/// lowest value in the first scene comes first.
fn bars(
    rows: &[Value],
    file: &'static str,
    title: &'static str,
    scenes: &[&str],
    field: &str,
) -> Option<Chart> {
    let find = |peer: &str, scene: &str| {
        let mut rows = rows.iter();
        rows.find(|row| name(row) == peer && row["scene"] == scene)
    };
    let number = |peer: &str, scene: &str| find(peer, scene).and_then(|row| row[field].as_f64());
    let mut peers: Vec<String> = rows.iter().map(name).collect();
    peers.sort();
    peers.dedup();
    peers.retain(|peer| scenes.iter().any(|scene| number(peer, scene).is_some()));
    let rank = |peer: &String| number(peer, scenes[0]).unwrap_or(f64::INFINITY);
    peers.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
    if peers.is_empty() {
        return None;
    }
    let panels = scenes.iter().map(|scene| Panel {
        title: (*scene).to_owned(),
        values: peers
            .iter()
            .map(|peer| {
                let value = number(peer, scene);
                let violations = find(peer, scene).and_then(|row| row["violations"].as_u64());
                (value, written(value, violations.unwrap_or(0)))
            })
            .collect(),
    });
    let panels = panels.collect();
    let rows = peers.into_iter().map(|name| Row { is_ours: name.starts_with("luagate"), name });
    let bars = Bars { file, title, rows: rows.collect(), panels };
    Some(bars.chart())
}

/// The text behind a bar. It shows if the peer exceeded the limit, which makes its speed meaningless.
fn written(value: Option<f64>, violations: u64) -> String {
    let value = match value {
        None => "no figure".to_owned(),
        Some(value) if value < 10.0 => format!("{value:.1}"),
        Some(value) => thousands(value.round() as u32),
    };
    match violations {
        0 => value,
        _ => format!("{value}, limit exceeded"),
    }
}
