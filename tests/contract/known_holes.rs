//! Promise: luagate has none of the known holes of `tests/known_holes.md`. The table names tests that exist,
//! and every test with the number of a hole.

use serde_json::Value;
use std::collections::BTreeSet;

const TABLE: &str = include_str!("../known_holes.md");
const HOLES: usize = 36;

/// The tests in a cell: pairs of a file and a name.
fn tests_in(cell: &str) -> Vec<(&str, &str)> {
    let mut tests = Vec::new();
    for group in cell.split("; ") {
        let (file, names) = group.split_once(": ").unwrap_or_else(|| panic!("a file and its tests: {group}"));
        let names = names.split('`').skip(1).step_by(2);
        tests.extend(names.map(|name| (file.trim().trim_matches('`'), name)));
    }
    tests
}

/// Whether a file contains this test or case.
fn exists(file: &str, name: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    if file.ends_with(".json") {
        let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
        return cases.iter().any(|case| case["name"] == name);
    }
    let lines: Vec<_> = text.lines().collect();
    let is_it =
        |line: &&str| line.strip_prefix("fn ").is_some_and(|rest| rest.starts_with(&format!("{name}()")));
    lines.windows(2).any(|pair| pair[0].starts_with("#[") && is_it(&pair[1]))
}

#[test]
fn every_known_hole_is_covered_by_a_test_that_exists() {
    let rows = TABLE.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut named = BTreeSet::new();
    let mut count = 0;
    for (place, row) in rows.enumerate() {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, _, tests] = cells[..] else { panic!("three cells: {row}") };
        assert_eq!(number, (place + 1).to_string());
        let tests = tests_in(tests);
        assert!(!tests.is_empty(), "no test covers hole {number}");
        for (file, name) in tests {
            assert!(exists(file, name), "hole {number}: {file} has no test {name}");
            named.insert(name);
        }
        count += 1;
    }
    assert_eq!(count, HOLES);
    let written =
        include_str!("../permits/known_holes.rs").lines().filter_map(|line| line.strip_prefix("fn hole_"));
    for test in written.filter_map(|rest| rest.split('(').next()) {
        assert!(named.contains(&*format!("hole_{test}")), "the table does not name hole_{test}");
    }
}
