//! Faults of processes, networks, clocks, servers and their memory: what the user observes, and that
//! everything works afterwards.

#[path = "../support/fuzz.rs"]
mod fuzz;
#[path = "../support/mod.rs"]
mod support;

mod clock;
mod errors;
mod failovers;
mod failures;
mod full_memory;
mod fuzz_server;
mod late_grants;
mod loading;
mod network;
mod processes;
mod replica;
mod server;

#[test]
fn process_of_a_test() {
    let Some((job, arguments)) = support::job() else {
        return;
    };
    match job.as_str() {
        support::workers::NAME => support::workers::work(&arguments),
        "step" => clock::hold_while_the_own_clock_steps(&arguments),
        "sleeper" => processes::sleep_over_the_lease(&arguments),
        "waiter" => processes::wait_in_line(&arguments),
        "crowd" => processes::hold_and_wait(&arguments),
        other => panic!("unknown job {other}"),
    }
}
