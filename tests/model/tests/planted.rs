//! Promise: the model finds faults of the library.
//!
//! A fault that takes three deviations takes a minute. It is planted only by `LUAGATE_PROVE=long`.

use luagate_model::planted::FAULTS;
use luagate_model::{CALLS, FUTURES, IDLE, JOBS, MESSAGES, POSTS, VALUES, WORK, explore};

#[test]
fn planted_faults_are_found() {
    std::panic::set_hook(Box::new(|_| {})); // some faults make the engine panic
    let mut missed = Vec::new();
    let most = if std::env::var_os("LUAGATE_PROVE").is_some() { 3 } else { 2 };
    for (number, fault) in FAULTS.iter().enumerate().filter(|(_, fault)| fault.deviations <= most) {
        let mut scenarios = [CALLS, POSTS, MESSAGES, IDLE, JOBS, WORK, VALUES, FUTURES].into_iter().flatten();
        let scenario = scenarios.find(|scenario| scenario.name == fault.found_by);
        let report = scenario.map(|scenario| explore(scenario, fault.deviations, Some(number)));
        match report.and_then(|report| report.failure.map(|failure| (report.executions, failure))) {
            Some((executions, failure)) => println!("{}: in execution {executions}, {}", fault.name, failure.promise),
            None => missed.push(fault.name),
        }
    }
    let _ = std::panic::take_hook();
    assert_eq!(missed, [""; 0], "not found");
}
