//! Promise: many threads and processes never hold more permits than the limit. Waiters are granted in the
//! order of arrival. A grant needs two script calls.

use crate::all_processors;
use crate::own;
use crate::support::{self, Server, process};

use luagate::{Gate, Lease, Ticket};
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: u32 = 3;
const HOLD: Duration = Duration::from_millis(1);

/// One hold of a permit, as its process recorded it.
#[derive(Clone, Copy, Debug)]
struct Stay {
    /// `None`: it did not wait.
    ticket: Option<Ticket>,
    fence: u64,
    entered: u128,
    left: u128,
}

fn now() -> u128 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
}

/// `threads` threads that together hold a permit `stays` times.
fn stay(gate: &Gate, name: &str, threads: u32, stays: u32) -> Vec<Stay> {
    let semaphore = gate.semaphore(name, LIMIT).lease(Lease::fixed(Duration::from_secs(60)));
    let record = Arc::new(Mutex::new(Vec::new()));
    let left = Arc::new(AtomicU32::new(stays));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (semaphore, record, left) = (&semaphore, record.clone(), left.clone());
            scope.spawn(move || {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    let permit = semaphore.acquire_timeout(Duration::from_secs(60)).unwrap();
                    let entered = now();
                    std::thread::sleep(HOLD);
                    let stay = Stay { ticket: permit.ticket(), fence: permit.fence(), entered, left: now() };
                    permit.release().unwrap();
                    record.lock().unwrap().push(stay);
                }
            });
        }
    });
    Arc::try_unwrap(record).unwrap().into_inner().unwrap()
}

/// The maximum number of holders at one time.
fn most_inside(stays: &[Stay]) -> i32 {
    let mut events: Vec<(u128, i32)> =
        stays.iter().flat_map(|stay| [(stay.entered, 1), (stay.left, -1)]).collect();
    events.sort(); // at the same instant, the leaving holder comes first
    let (mut inside, mut most) = (0, 0);
    for (_, change) in events {
        inside += change;
        most = most.max(inside);
    }
    most
}

#[track_caller]
fn assert_in_order(stays: &mut [Stay]) {
    stays.sort_by_key(|stay| stay.fence);
    for pair in stays.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "the same fence twice: {pair:?}");
    }
    let waited: Vec<_> = stays.iter().filter(|stay| stay.ticket.is_some()).collect();
    for pair in waited.windows(2) {
        assert!(pair[0].ticket < pair[1].ticket, "overtaken: {pair:?}");
    }
}

/// The main function of each other process.
pub fn work(arguments: &[String]) {
    let [url, prefix, threads, stays] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    for stay in stay(&gate, "limit", threads.parse().unwrap(), stays.parse().unwrap()) {
        let ticket = stay.ticket.map_or("none".to_owned(), |ticket| ticket.to_string());
        println!("stay {ticket} {} {} {}", stay.fence, stay.entered, stay.left);
    }
}

#[test]
fn two_hundred_threads_and_twenty_processes_keep_limit_and_order() {
    let _processors = all_processors();
    let server = Server::any();
    let gate = server.gate();
    let children: Vec<_> = (0..20)
        .map(|_| {
            let arguments = [&*server.url, &*server.prefix, "10", "500"];
            process("limit", &arguments).spawn().unwrap()
        })
        .collect();
    let mut stays = stay(&gate, "limit", 200, 10_000);
    for mut child in children {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map(Result::unwrap) {
            let Some(numbers) = line.strip_prefix("stay ") else {
                continue;
            };
            let words: Vec<&str> = numbers.split(' ').collect();
            stays.push(Stay {
                ticket: Some(words[0]).filter(|word| *word != "none").map(|word| word.parse().unwrap()),
                fence: words[1].parse().unwrap(),
                entered: words[2].parse().unwrap(),
                left: words[3].parse().unwrap(),
            });
        }
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(stays.len(), 20_000);
    assert!(most_inside(&stays) <= 3, "{} holders at once", most_inside(&stays));
    assert!(most_inside(&stays) > 1, "two holders never overlapped, so nothing was tested");
    assert_in_order(&mut stays);
}

/// Asserts the number of scripts for each grant, with a constant number of waiters.
fn assert_two_scripts_a_grant(waiters: u32, grants: u32) {
    let _processors = all_processors();
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let gate = server.gate();
    // The client is subscribed and the scripts are loaded before the count starts.
    stay(&gate, "warm", LIMIT * 2, LIMIT * 4);
    support::reset_counts(&mut con);
    let stays = stay(&gate, "counted", waiters + LIMIT, grants);
    assert_eq!(stays.len() as u32, grants);
    let scripts = support::calls_in_scripts(&mut con).1;
    let a_grant = scripts as f64 / f64::from(grants);
    assert!((2.0..=2.1).contains(&a_grant), "{a_grant} scripts a grant");
}

#[test]
fn a_grant_needs_two_scripts_with_10_waiters() {
    assert_two_scripts_a_grant(10, 2_000);
}

#[test]
fn a_grant_needs_two_scripts_with_200_waiters() {
    assert_two_scripts_a_grant(200, 4_000);
}
