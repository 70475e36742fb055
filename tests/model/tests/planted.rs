//! Promise: the model finds faults of the library, at each point that is planted in it.
//!
//! A fault that takes three deviations takes a minute. It is planted only by `LUAGATE_PROVE=long`.

use luagate_model::planted::FAULTS;
use luagate_model::{CALLS, FUTURES, IDLE, JOBS, MESSAGES, POSTS, VALUES, WORK, explore};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn planted_faults_are_found() {
    std::panic::set_hook(Box::new(|_| {})); // some faults make the engine panic
    let mut missed = Vec::new();
    let most = if std::env::var_os("LUAGATE_PROVE").is_some() { 3 } else { 2 };
    for fault in FAULTS.iter().filter(|fault| fault.deviations <= most) {
        let mut scenarios = [CALLS, POSTS, MESSAGES, IDLE, JOBS, WORK, VALUES, FUTURES].into_iter().flatten();
        let scenario = scenarios.find(|scenario| scenario.name == fault.found_by);
        let report = scenario.map(|scenario| explore(scenario, fault.deviations, Some(fault.name)));
        match report.and_then(|report| report.failure.map(|failure| (report.executions, failure))) {
            Some((executions, failure)) => {
                println!("{}: in execution {executions}, {}", fault.name, failure.promise)
            }
            None => missed.push(fault.name),
        }
    }
    let _ = std::panic::take_hook();
    assert_eq!(missed, [""; 0], "not found");
}

/// The names of all points in the files of a folder.
fn points(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names.extend(points(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let found = text.split("fault!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(found.map(str::to_owned));
        }
    }
    names
}

#[test]
fn each_point_has_its_own_name_and_is_listed() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
    let mut points = points(&library);
    points.sort();
    let listed: BTreeSet<_> = FAULTS.iter().map(|fault| fault.name.to_owned()).collect();
    assert_eq!(points, listed.into_iter().collect::<Vec<_>>());
}
