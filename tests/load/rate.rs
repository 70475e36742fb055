//! Promise: with `at_least`, the number of starts in any window of that length never exceeds the limit, by
//! the server's clock and for any number of processes.

use crate::all_processors;
use crate::support::{Server, process};

use luagate::Gate;
use std::io::{BufRead, BufReader};
use std::time::Duration;

const LIMIT: u32 = 10;
const AT_LEAST_MS: u64 = 100;
const PROCESSES: u32 = 50;
const STARTS: u32 = 8;

/// The main function of each process: starts a few times, with one or two permits, and releases them at once.
pub fn work(arguments: &[String]) {
    let [url, prefix, number] = arguments else { panic!("{arguments:?}") };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let least = Duration::from_millis(AT_LEAST_MS);
    let rate = gate.semaphore("rate", LIMIT).at_least(least);
    let number: u32 = number.parse().unwrap();
    for start in 0..STARTS {
        let permits = 1 + (number + start) % 2;
        let permit = rate.acquire_many_timeout(permits, Duration::from_secs(120)).unwrap();
        // A fence is the server's time of the grant, in µs.
        println!("start {} {permits}", permit.fence());
        permit.release().unwrap();
    }
}

#[test]
fn fifty_processes_start_no_more_than_the_limit_in_any_window() {
    let _processors = all_processors();
    let server = Server::any();
    let children: Vec<_> = (0..PROCESSES)
        .map(|number| process("rate", &[&*server.url, &*server.prefix, &number.to_string()]).spawn().unwrap())
        .collect();
    let mut starts: Vec<(u64, u32)> = Vec::new(); // in ms by the server's clock, and the number of permits
    for mut child in children {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map(Result::unwrap) {
            let Some((fence, permits)) = line.strip_prefix("start ").and_then(|start| start.split_once(' '))
            else {
                continue;
            };
            starts.push((fence.parse::<u64>().unwrap() / 1_000, permits.parse().unwrap()));
        }
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(starts.len() as u32, PROCESSES * STARTS);
    starts.sort_unstable();
    let in_window = |first: usize| -> u32 {
        let end = starts[first].0 + AT_LEAST_MS;
        starts[first..].iter().take_while(|(at, _)| *at < end).map(|(_, permits)| permits).sum()
    };
    let most = (0..starts.len()).map(in_window).max();
    assert_eq!(most, Some(LIMIT), "in the fullest window of {AT_LEAST_MS} ms");
}
