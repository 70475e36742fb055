//! Seeds from the conformance cases of the scripts: their replies, and their messages.

use crate::targets::resp::encode;
use luagate_core::value::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The steps of all cases.
fn steps() -> Vec<serde_json::Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lua/conformance");
    let files = std::fs::read_dir(folder).expect("the conformance cases").flatten().map(|entry| entry.path());
    let cases =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "json")).flat_map(|file| {
            let text = std::fs::read_to_string(&file).expect("a file of cases");
            serde_json::from_str::<Vec<serde_json::Value>>(&text).expect("a list of cases")
        });
    cases.flat_map(|case| case["steps"].as_array().cloned().unwrap_or_default()).collect()
}

/// A value that matches this pattern, or nearly does.
fn like(pattern: &serde_json::Value) -> Value {
    match pattern {
        serde_json::Value::Array(items) => Value::Array(items.iter().map(like).collect()),
        serde_json::Value::String(text) if text.starts_with(['$', '<', '>', '*', '-']) => {
            Value::Int(number(text))
        }
        serde_json::Value::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        other => Value::Int(other.as_i64().unwrap_or_default()),
    }
}

/// A number for a pattern: a time, or a small one.
fn number(pattern: &str) -> i64 {
    const NOW: i64 = 1_700_000_000_000;
    match pattern {
        _ if pattern.contains("-$now") => 30_000,
        "$now" => NOW,
        _ if pattern.contains("now") || pattern.contains("end") => NOW + 30_000,
        _ => 7,
    }
}

/// The replies, in the format of the server.
pub fn replies() -> Vec<Vec<u8>> {
    let steps = steps();
    let replies = steps.iter().filter_map(|step| step.get("reply")).map(|reply| encode(&like(reply)));
    let errors = steps
        .iter()
        .filter_map(|step| step["error"].as_str())
        .map(|error| format!("-{error}\r\n").into_bytes());
    replies.chain(errors).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The messages that the scripts publish.
pub fn messages() -> Vec<Vec<u8>> {
    let word = |word: &serde_json::Value| match like(word) {
        Value::Int(number) => number.to_string().into_bytes(),
        Value::BulkString(bytes) => bytes,
        _ => Vec::new(),
    };
    let signature = "41a9f2e61851758a6ae3a4b0dae93b27188e47e7";
    let steps = steps();
    let messages = steps.iter().filter_map(|step| step["message"].as_array());
    let messages = messages.map(|words| words.iter().map(word).collect::<Vec<_>>().join(&b' '));
    let signed = [format!("a 1 17 5000 4000 {signature}").into_bytes(), b"a 0 0 -1 4000".to_vec()];
    messages.chain(signed).collect::<BTreeSet<_>>().into_iter().collect()
}
