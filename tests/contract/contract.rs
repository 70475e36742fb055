//! Promise: within one version of the contract, everything that clients in other languages rely on stays the
//! same.
//!
//! `tests/contract/<version>.json` stores its first state: KEYS, ARGV and replies of each script, and the
//! SHA-1 of the steps and expectations of each case in `lua/conformance/`. Additions are allowed. To record
//! them: `LUAGATE_RECORD=1 cargo test --test contract contract::`.

use serde_json::{Map, Value, json};
use std::path::PathBuf;

fn read(path: &str) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A case without its counts of script calls, which are measurements only.
fn without_calls(step: &Value) -> Value {
    match step {
        Value::Array(steps) => steps.iter().map(without_calls).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "calls");
            let fields = fields.map(|(name, value)| (name.clone(), without_calls(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// The SHA-1 of every case, by file name and case name.
fn cases() -> Map<String, Value> {
    let mut cases = Map::new();
    let files = std::fs::read_dir("lua/conformance").unwrap();
    let paths = files.map(|file| file.unwrap().path());
    for path in paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
        let file = path.file_stem().unwrap().to_str().unwrap();
        for case in read(path.to_str().unwrap()).as_array().unwrap() {
            let steps = without_calls(&case["steps"]).to_string();
            let sha1 = sha1_smol::Sha1::from(steps).digest().to_string();
            let name = format!("{file}: {}", case["name"].as_str().unwrap());
            assert!(cases.insert(name.clone(), json!(sha1)).is_none(), "two cases are called {name}");
        }
    }
    cases
}

/// The current contract: its version, and what is recorded about it.
fn today() -> (u64, Value) {
    let manifest = read("lua/manifest.json");
    let mut scripts = manifest["scripts"].clone();
    for script in scripts.as_object_mut().unwrap().values_mut() {
        let script = script.as_object_mut().unwrap();
        script.retain(|name, _| ["keys", "argv", "replies"].contains(&name.as_str()));
    }
    let version = manifest["contract"].as_u64().unwrap();
    (version, json!({"scripts": scripts, "cases": cases()}))
}

#[test]
fn the_recorded_contract_changes_only_with_its_version() {
    let (version, today) = today();
    let path = format!("tests/contract/{version}.json");
    let is_recording = std::env::var_os("LUAGATE_RECORD").is_some();
    if is_recording && !PathBuf::from(&path).exists() {
        std::fs::write(&path, "{\"scripts\": {}, \"cases\": {}}").unwrap();
    }
    let recorded = read(&path);
    for part in ["scripts", "cases"] {
        for (name, expected) in recorded[part].as_object().unwrap() {
            assert_eq!(
                today[part].get(name),
                Some(expected),
                "{name}: clients rely on contract {version}. If this must change, `contract` in \
                 lua/manifest.json is to be counted up, lua/README.md to say what is new, and each client to follow"
            );
        }
    }
    if is_recording {
        let text = serde_json::to_string_pretty(&today).unwrap();
        std::fs::write(&path, text + "\n").unwrap();
        return;
    }
    assert_eq!(recorded, today, "additions are not recorded: `LUAGATE_RECORD=1 cargo test --test contract`");
}

/// Every case that the table of promises names exists.
#[test]
fn every_case_named_in_the_table_of_promises_exists() {
    let page = std::fs::read_to_string("lua/README.md").unwrap();
    let table = page.split("## What a client may rely on").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let cells = rows.map(|row| row.split(" | ").nth(2).unwrap());
    let names: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() > 11, "{names:?}");
    let cases = cases();
    for name in names {
        assert!(cases.contains_key(name), "no case is called {name}");
    }
}

/// Each client states the contract version it was written for, and refuses any other.
#[test]
fn every_client_names_the_current_contract_version() {
    let (version, _) = today();
    let clients = [
        ("python/luagate/scripts.py", format!("CONTRACT = {version} ")),
        ("javascript/lib/scripts.js", format!("CONTRACT = {version};")),
        ("go/scripts/scripts.go", format!("contract = {version}\n")),
        ("java/src/main/java/luagate/Scripts.java", format!("CONTRACT = {version};")),
    ];
    for (client, says) in clients {
        let text = std::fs::read_to_string(format!("clients/{client}")).unwrap();
        assert!(text.contains(&says), "{client}: {says}");
    }
}
