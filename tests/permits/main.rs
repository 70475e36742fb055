//! Acquiring and releasing: permits of semaphores, mutexes, read-write locks, latches and autocomplete.

#[cfg(unix)]
#[path = "../support/forked.rs"]
mod forked;
#[path = "../support/mod.rs"]
mod support;
#[cfg(all(unix, feature = "tls"))]
#[path = "../support/tls_server.rs"]
mod tls_server;

mod at_least;
mod autocomplete;
mod bulk;
mod counters;
mod dropping;
mod fence;
mod forks;
mod known_holes;
mod latch;
mod limit;
mod looking;
mod max_waiting;
mod names;
mod outcomes;
mod own_ids;
mod permits;
mod renewal;
mod rwlock;
mod several;
mod systems;

#[test]
fn process_of_a_test() {
    let Some((job, arguments)) = support::job() else {
        return;
    };
    match job.as_str() {
        "wait" | "crash" => latch::work(&job, &arguments),
        #[cfg(target_os = "linux")]
        "thousand" => renewal::hold_a_thousand(&arguments),
        "read" => rwlock::read(&arguments),
        "drop" => dropping::drop_and_exit(&arguments),
        other => panic!("unknown job {other}"),
    }
}
