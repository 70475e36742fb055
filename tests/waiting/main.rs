//! Waiting in line: a waiter is woken in time, only by the server, and leaves nothing behind.

#[path = "../support/fuzz.rs"]
mod fuzz;
#[path = "../support/mod.rs"]
mod support;

mod forged;
mod waiting;
mod wake_up;

#[test]
fn process_of_a_test() {
    let Some((job, arguments)) = support::job() else {
        return;
    };
    match job.as_str() {
        "worker" => waiting::work(&arguments),
        other => panic!("unknown job {other}"),
    }
}
