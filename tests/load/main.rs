//! Many threads and processes at once, and the check of their results. Tests that use every processor run one
//! after another. They are in another binary than tests that measure time.

#[path = "../support/mod.rs"]
mod support;

mod axum_limit;
mod examples;
mod histories;
mod history_checker;
mod history_forgotten;
mod limit;
// Memory and threads of a process are read from /proc. An async gate has neither a thousand connections nor
// threads.
#[cfg(target_os = "linux")]
mod load;
mod planted_faults;
mod programs;
mod rate;
mod several;
mod timeouts;
mod versions;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks until no other test uses all processors, and reserves them until it is dropped.
fn all_processors() -> MutexGuard<'static, ()> {
    static PROCESSORS: Mutex<()> = Mutex::new(());
    // A panic in another test is reported by that test.
    PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn process_of_a_test() {
    let Some((job, arguments)) = support::job() else {
        return;
    };
    match job.as_str() {
        "limit" => limit::work(&arguments),
        "live" => histories::work(&arguments),
        #[cfg(target_os = "linux")]
        "load" => support::load::work(&arguments),
        "rate" => rate::work(&arguments),
        "planted" => planted_faults::work(&arguments),
        other => panic!("unknown job {other}"),
    }
}
