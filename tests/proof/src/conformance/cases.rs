//! The cases as written in the files, and variants with signed messages.

use serde_json::Value as Json;
use std::path::PathBuf;

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file and the case's own name.
    pub name: String,
    /// The longest total time of the steps without the pauses, in ms. A slower run proves nothing.
    pub slack_ms: u64,
    pub steps: Vec<Json>,
}

/// Every case, by file name and then in file order.
pub fn cases() -> Vec<Case> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua/conformance"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{folder:?}: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let list: Vec<Json> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let file = path.file_stem().unwrap().to_string_lossy();
        for case in list {
            let name = case["name"].as_str().unwrap_or_else(|| panic!("{case}"));
            cases.push(Case {
                name: format!("{file}: {name}"),
                slack_ms: case["slack_ms"].as_u64().unwrap_or(20),
                steps: case["steps"].as_array().unwrap().clone(),
            });
        }
    }
    cases
}

/// A variant with signed messages of each case in which a waiter has unsigned messages.
pub fn signed(cases: &[Case]) -> Vec<Case> {
    let of_semaphores = cases.iter().filter(|case| !case.name.starts_with("latch"));
    let signed = of_semaphores.map(|case| Case {
        name: format!("{}, signed", case.name),
        slack_ms: case.slack_ms,
        steps: case.steps.iter().map(sign).collect(),
    });
    let cases = cases.iter().map(|case| &case.steps).collect::<Vec<_>>();
    signed.filter(|case| !cases.contains(&&case.steps)).collect()
}

/// A step whose inbox has a secret.
fn sign(step: &Json) -> Json {
    const SECRET: &str = "s3cret";
    let mut step = step.clone();
    if let Some(steps) = step.get_mut("steps").and_then(Json::as_array_mut) {
        steps.iter_mut().for_each(|step| *step = sign(step));
    }
    if step.get("message").is_some() && step.get("secret").is_none() {
        step["secret"] = SECRET.into();
    }
    if step["call"] == "semaphore/acquire"
        && step.get("error").is_none()
        && let Some(Json::String(inbox)) = step["argv"].get_mut(5)
        && !inbox.is_empty()
        && !inbox.contains('#')
    {
        *inbox = format!("{inbox}#{SECRET}");
    }
    step
}
