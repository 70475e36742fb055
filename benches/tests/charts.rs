//! Promise: the charts are readable on a light and on a dark page, small, and the same for the same numbers;
//! the pages that show charts show existing ones; and a peer is shown as it was measured.

use luagate_benches::chart::{Axis, Chart, Line, Lines};
use luagate_benches::peers;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const LIGHT: &str = "#FFFFFF";
const DARK: &str = "#0D1117";

/// The contrast that WCAG requires for graphics and large text.
const CONTRAST: f64 = 3.0;

fn lines() -> Chart {
    let line = |name, factor: f64| Line {
        name,
        points: (1..=100).map(|x| (x.into(), f64::from(x) * factor)).collect(),
        is_reference: factor == 1.0,
    };
    Lines {
        file: "lines.svg",
        title: "lines",
        x: Axis::of("x", true, &[1, 10, 100]),
        y: Axis::upwards("y", 500.0),
        lines: vec![
            line("one", 1.0),
            line("two", 2.0),
            line("three", 3.0),
            line("four", 4.0),
            line("five", 4.5),
            line("six", 5.0),
        ],
        has_marks: false,
    }
    .chart()
}

/// Invented results of peers.
fn results() -> Value {
    let row = |peer: &str, scene: &str, cpu: Option<f64>, p99: Option<f64>, violations: u32| {
        json!({"peer": peer, "language": "Rust", "version": "1", "scene": scene, "pairs_per_second": 1.0,
            "server_cpu_us_per_pair": cpu, "commands_per_pair": 2.0, "wait_p50_ms": p99, "wait_p99_ms": p99,
            "violations": violations, "less": "", "note": ""})
    };
    json!([
        row("slow", "uncontended", Some(400.0), None, 0),
        row("luagate", "uncontended", Some(100.0), None, 0),
        row("slow", "200 on 1", None, None, 0),
        row("luagate", "200 on 1", Some(50.0), Some(2.0), 0),
        row("lax", "200 on 1", Some(25.0), Some(1.0), 7),
    ])
}

fn charts_of(results: &Value) -> Vec<Chart> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    std::fs::write(&file, results.to_string()).unwrap();
    peers::charts(&file).unwrap()
}

/// The values of an attribute.
fn all<'a>(svg: &'a str, attribute: &str) -> Vec<&'a str> {
    let before = format!(" {attribute}=\"");
    let rest = svg.split(&*before).skip(1);
    rest.map(|rest| rest.split('"').next().unwrap()).collect()
}

/// All texts, in order.
fn texts(svg: &str) -> Vec<&str> {
    let inside = svg.split("<text").skip(1);
    let inside = inside.map(|rest| rest.split("</text>").next().unwrap());
    inside.map(|text| text.split_once('>').unwrap().1.trim()).collect()
}

fn contrast(one: &str, other: &str) -> f64 {
    let light = |colour: &str| {
        let part = |at: usize| {
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            match part {
                ..=0.04045 => part / 12.92,
                _ => ((part + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) + 0.05
    };
    let (one, other) = (light(one), light(other));
    one.max(other) / one.min(other)
}

#[test]
fn every_colour_has_contrast_on_a_light_and_on_a_dark_page() {
    let mut charts = charts_of(&results());
    charts.push(lines());
    for Chart { file, svg, .. } in charts {
        let colours: BTreeSet<&str> = ["fill", "stroke"].iter().flat_map(|name| all(&svg, name)).collect();
        let colours: Vec<&str> = colours.into_iter().filter(|name| *name != "none").collect();
        assert!(colours.len() > 1, "{file}: {colours:?}");
        for colour in colours {
            for page in [LIGHT, DARK] {
                let contrast = contrast(colour, page);
                assert!(contrast >= CONTRAST, "{file}: {colour} on {page}: {contrast:.2}");
            }
        }
    }
}

#[test]
fn the_same_numbers_give_the_same_small_file() {
    assert_eq!(lines().svg, lines().svg);
    assert!(lines().svg.len() < 20_000, "{} bytes", lines().svg.len());
    let [one, other] = [charts_of(&results()), charts_of(&results())];
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one.svg, other.svg);
    }
}

/// A point is drawn at its number: on a logarithmic axis from 1 to 100, ten is in the middle.
#[test]
fn a_point_is_at_its_number() {
    let svg = lines().svg;
    let line = svg.lines().filter(|line| line.starts_with("<polyline"));
    let line = line.max_by_key(|line| line.len()).unwrap();
    let points: Vec<(i32, i32)> = all(line, "points")[0]
        .split_whitespace()
        .map(|point| point.split_once(',').unwrap())
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    assert_eq!(points.len(), 100);
    let middle = (points[0].0 + points[99].0) / 2;
    assert!((points[9].0 - middle).abs() <= 1, "{points:?}");
    let half = (points[0].1 + points[99].1) / 2; // 1 to 100 on a linear axis: half is at 50.5
    assert!((points[49].1 - half).abs() <= 2, "{points:?}");
}

#[test]
fn a_peer_is_shown_as_it_was_measured() {
    let charts = charts_of(&results());
    let [cpu, wait] = &charts[..] else { panic!("{} charts", charts.len()) };
    let shown = texts(&cpu.svg);
    let at = |text: &str| shown.iter().position(|shown| *shown == text).unwrap();
    // The peer with the lowest value in the first scene comes first, a peer without a value comes last.
    assert!(at("luagate (Rust)") < at("slow (Rust)") && at("slow (Rust)") < at("lax (Rust)"));
    assert_eq!(&shown[at("uncontended") + 1..][..3], ["100", "400", "no figure"]);
    assert_eq!(&shown[at("200 on 1") + 1..][..3], ["50", "no figure", "25, limit exceeded"]);
    let bars = cpu.svg.lines().filter(|line| line.starts_with("<rect"));
    let widths: Vec<f64> = bars.map(|bar| all(bar, "width")[0].parse().unwrap()).collect();
    assert_eq!(widths.len(), 4, "a missing value has no bar");
    assert!((widths[1] / widths[0] - 4.0).abs() < 0.2, "{widths:?}");
    let shown = texts(&wait.svg);
    assert!(!shown.contains(&"slow (Rust)") && !shown.contains(&"uncontended"), "{shown:?}");
}

#[test]
fn missing_results_give_no_charts_and_a_broken_file_gives_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    assert!(peers::charts(&file).unwrap().is_empty());
    std::fs::write(&file, "[{").unwrap();
    let error = peers::charts(&file).err().unwrap().to_string();
    assert!(error.contains("results.json"), "{error}");
}

#[test]
fn every_chart_shown_on_a_page_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (page, most) in [("README.md", 1), ("benches/README.md", usize::MAX)] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let shown = text.split("charts/").skip(1);
        let shown: Vec<&str> = shown.map(|rest| rest.split(')').next().unwrap()).collect();
        assert!((1..=most).contains(&shown.len()), "{page}: {shown:?}");
        for file in shown {
            assert!(root.join("docs/charts").join(file).is_file(), "{page}: {file} does not exist");
        }
    }
}
