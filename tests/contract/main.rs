//! What the scripts promise to clients in any language: calls and replies, keys, bounds on work and memory,
//! and versions.

#[cfg(unix)]
#[path = "../support/forked.rs"]
mod forked;
#[path = "../support/fuzz.rs"]
mod fuzz;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
#[path = "../support/tls_server.rs"]
mod tls_server;

mod async_forms;
mod bounded_work;
mod capacity;
mod commands;
mod contract;
mod errors;
mod fuzz_arguments;
mod fuzz_names;
mod fuzz_replies;
mod holds;
mod known_holes;
mod manifest;
mod parts;
mod readme_of_scripts;
mod sources;
mod versions;

#[test]
fn process_of_a_test() {
    let Some((job, arguments)) = support::job() else {
        return;
    };
    match job.as_str() {
        "open" => errors::open(&arguments),
        other => panic!("there is no job {other}"),
    }
}
