//! Promise: scripts are loaded when they are first needed. If the server lost them, the next call makes one more round
//! trip.

use crate::own;
use crate::support::stop::Stop;
use crate::support::{Server, command_counts, reset_counts};

use std::collections::BTreeMap;

/// The commands that the server ran for `run`: one release and one acquire.
fn commands(server: &Server, run: impl FnOnce()) -> BTreeMap<String, u64> {
    let mut con = server.connection();
    reset_counts(&mut con);
    run();
    command_counts(&mut con)
}

fn count(counts: &BTreeMap<String, u64>, name: &str) -> u64 {
    // Redis 6 has one counter for all SCRIPT commands.
    let old = name.split('|').next().unwrap();
    counts.get(name).or(counts.get(old)).copied().unwrap_or(0)
}

#[test]
fn scripts_are_loaded_when_they_are_first_needed() {
    let server = own!(Server::private(&[]));
    let counts = commands(&server, || drop(server.gate().semaphore("lazy", 1)));
    assert_eq!(count(&counts, "script|load"), 0);
    let pair = || {
        server.gate().semaphore("lazy", 1).try_acquire().unwrap().release().unwrap();
    };
    let counts = commands(&server, pair);
    assert_eq!(count(&counts, "script|load"), 2, "acquire and release");
    let counts = commands(&server, pair);
    assert_eq!((count(&counts, "script|load"), count(&counts, "evalsha")), (0, 2));
}

#[test]
fn a_lost_script_is_loaded_again_in_one_packet() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("flushed", 1);
    let permit = semaphore.try_acquire().unwrap();
    permit.refresh().unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection()).unwrap();
    let counts = commands(&server, || permit.refresh().unwrap());
    assert_eq!((count(&counts, "script|load"), count(&counts, "evalsha")), (1, 2));
    let counts = commands(&server, || permit.refresh().unwrap());
    assert_eq!((count(&counts, "script|load"), count(&counts, "evalsha")), (0, 1));
    permit.release().unwrap();
}

#[test]
fn every_call_succeeds_while_scripts_are_flushed_all_the_time() {
    let server = own!(Server::private(&[]));
    let semaphore = server.gate().semaphore("flushed", 3);
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let _stop = stop.at_end();
        scope.spawn(|| {
            let mut con = server.connection();
            while !stop.is_set() {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut con).unwrap();
            }
        });
        let workers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..100).for_each(|_| drop(semaphore.acquire().unwrap())))).collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        assert!(ends.iter().all(Result::is_ok));
    });
    assert_eq!(semaphore.available_permits().unwrap(), 3);
}
