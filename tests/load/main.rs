//! Many threads and processes at once, and the check of what they did. Tests that keep every processor busy run one after the
//! other, and are not in a program with those that measure a time.

#[path = "../support/mod.rs"]
mod support;

mod crowd;
mod examples;
mod histories;
mod history_checker;
mod history_forgotten;
#[cfg(target_os = "linux")] // what a process uses is read from /proc
mod load;
mod planted_faults;
mod rate;
mod several;
mod timeouts;
mod versions_crowd;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test has the processors, and has them until it is dropped.
fn all_processors() -> MutexGuard<'static, ()> {
    static PROCESSORS: Mutex<()> = Mutex::new(());
    // One that panicked has failed by itself.
    PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn process_of_a_test() {
    let Some((job, arguments)) = support::job() else {
        return;
    };
    match job.as_str() {
        "crowd" => crowd::work(&arguments),
        "live" => histories::work(&arguments),
        #[cfg(target_os = "linux")]
        "load" => support::load::work(&arguments),
        "rate" => rate::work(&arguments),
        "planted" => planted_faults::work(&arguments),
        other => panic!("there is no job {other}"),
    }
}
