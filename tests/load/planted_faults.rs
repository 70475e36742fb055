//! Promise: the history checker finds a semaphore's fault, however rarely it occurs.

use crate::all_processors;
use crate::support::history::{Call, History, Op, Outcome, Recorder, Rule, Rules};
use crate::support::planted::{self, Client, Fault};
use crate::support::{Server, process};

use redis::Commands;
use std::path::Path;
use std::time::Duration;

const LIMIT: u32 = 3;
const LEASE_MS: u64 = 10_000;
const STAY: Duration = Duration::from_micros(planted::STAY_US);
const PROCESSES: u32 = 4;
const THREADS: u32 = 2;

/// The calls of each thread.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Calls `try_acquire` and releases.
    Tries,
    /// The same until a fault has struck. Shortly before it strikes, each thread begins to hold its permit
    /// for a while.
    UntilStruck,
    /// Waits in line.
    Waits,
    /// The same, some of them with a head start.
    WaitsUrgently,
    /// Refreshes its permit.
    Refreshes,
}

/// The fault's counter from which each thread holds its permit for a while. All threads read the counter
/// often enough to start in time.
const STAYS_FROM: u32 = 9_000;

fn live(mut client: Client, work: Work, who: &str, grants: u32) {
    let (mut granted, mut stays) = (0, false);
    for call in 0.. {
        if matches!(work, Work::UntilStruck) && call % 64 == 0 {
            let (count, struck) = client.progress();
            stays = count >= STAYS_FROM;
            if struck {
                return;
            }
        }
        let id = format!("{who}/{call}");
        let patience = match work {
            Work::Waits | Work::WaitsUrgently => Some(Duration::from_secs(10)),
            _ => None,
        };
        let head_start_ms = match work {
            Work::WaitsUrgently => [0, 0, 1, 0, 86_400_000][call % 5],
            _ => 0,
        };
        if !client.acquire(&id, patience, head_start_ms) {
            continue;
        }
        if stays || matches!(work, Work::Refreshes | Work::WaitsUrgently) {
            std::thread::sleep(STAY); // so that other calls come in between
        }
        if let Work::Refreshes = work {
            client.refresh(&id);
        }
        client.release(&id);
        granted += 1;
        if granted == grants {
            return;
        }
    }
}

/// The main function of each process.
pub fn work(arguments: &[String]) {
    let [url, prefix, folder, fault, work, who, grants] = arguments else { panic!() };
    let recorder = Recorder::create(Path::new(folder));
    let work = match work.as_str() {
        "Tries" => Work::Tries,
        "Waits" => Work::Waits,
        "WaitsUrgently" => Work::WaitsUrgently,
        "UntilStruck" => Work::UntilStruck,
        _ => Work::Refreshes,
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let fault = Fault::named(fault);
            let client = Client::new(&recorder, url, prefix, LIMIT, LEASE_MS, fault);
            let who = format!("{who}{thread}");
            scope.spawn(move || live(client, work, &who, grants.parse().unwrap()));
        }
    });
}

/// Makes this number of grants with the fault, which strikes at the `strike`th occasion. Returns the history
/// and the id that the fault struck.
fn history(fault: &Fault, work: Work, grants: u32, strike: u32) -> (History, Option<String>) {
    let _processors = all_processors();
    let server = Server::any();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let meta = server.keys("planted").list()[0].to_owned();
    let mut con = server.connection();
    let _: () = con.set(format!("{meta}.strike"), strike).unwrap();
    let share = (grants / PROCESSES / THREADS).to_string();
    let work = format!("{work:?}");
    let children: Vec<_> = ["a", "b", "c", "d"]
        .map(|who| {
            let arguments = [&server.url, &server.prefix, path, fault.name, &work, who, &share];
            process("planted", &arguments).spawn().unwrap()
        })
        .into();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let struck = con.get(format!("{meta}.struck")).unwrap();
    (History::read(folder.path()), struck)
}

/// The maximum number of calls that may begin between the call that the fault struck and the call that no
/// order explains. A wrong refusal is visible only in denials, which are rare while one process runs alone:
/// only these count then.
const SOON: usize = 500;

/// Asserts that the checker finds the fault: one of these rules is broken, and not before the call that the
/// fault struck.
#[track_caller]
fn assert_found(fault: &Fault, work: Work, grants: u32, strike: u32, rules: &[Rule]) {
    let (mut history, struck) = history(fault, work, grants, strike);
    let struck = struck.expect("the fault never struck, so nothing was tested");
    let violation = history.check(&Rules::new(LIMIT)).expect_err("the fault was not found");
    assert!(rules.contains(&violation.rule), "{violation}");
    history.calls.sort_by_key(|call| call.start);
    let is_struck = |call: &Call| match &call.op {
        Op::Acquire { .. } => {
            matches!(&call.outcome, Outcome::Granted(granted) if granted.id == struck)
        }
        Op::Release { id, .. } => *id == struck,
        _ => false,
    };
    let first = history.calls.iter().position(is_struck).unwrap();
    let last = history.calls.iter().rposition(is_struck).unwrap();
    let found = history.calls.partition_point(|call| call.start <= violation.at);
    let shows = |call: &&Call| violation.rule != Rule::Refusal || matches!(call.outcome, Outcome::Denied(_));
    let between = history.calls.get(last..found).map_or(0, |calls| calls.iter().filter(shows).count());
    assert!(
        found >= first && between < SOON,
        "the fault struck {struck} at {first} to {last} and was found at {found}: {violation}"
    );
}

#[test]
fn the_sound_scripts_pass() {
    for work in [Work::Tries, Work::Waits, Work::WaitsUrgently, Work::Refreshes] {
        let (history, _) = history(&planted::NONE, work, 800, 1);
        history.assert(&Rules::new(LIMIT));
        assert_eq!(history.count(|reported| matches!(reported, Outcome::Granted(_))), 800);
    }
}

#[test]
fn one_grant_beyond_the_limit_in_10_000_is_found() {
    let fault = &planted::ONE_TOO_MANY;
    assert_found(fault, Work::UntilStruck, 40_000, 10_000, &[Rule::Limit]);
}

#[test]
fn two_swapped_waiters_are_found() {
    assert_found(&planted::SWAPPED, Work::Waits, 2_000, 100, &[Rule::Order]);
}

#[test]
fn a_head_start_that_overtakes_an_earlier_waiter_is_found() {
    assert_found(&planted::OVERTAKES_ALL, Work::WaitsUrgently, 2_000, 100, &[Rule::Order]);
}

#[test]
fn an_ignored_head_start_is_found() {
    assert_found(&planted::IGNORED, Work::WaitsUrgently, 2_000, 100, &[Rule::Order]);
}

#[test]
fn a_fence_granted_twice_is_found() {
    let fault = &planted::FENCE_TWICE;
    assert_found(fault, Work::Tries, 2_000, 1_000, &[Rule::Fence]);
}

#[test]
fn a_lease_cut_short_is_found() {
    let fault = &planted::CUT_SHORT;
    // Its holder learns that it is lost, or another permit is granted before that.
    let rules = [Rule::Lease, Rule::Limit];
    assert_found(fault, Work::Refreshes, 400, 200, &rules);
}

#[test]
fn a_release_that_frees_nothing_is_found() {
    let fault = &planted::NOT_FREED;
    assert_found(fault, Work::Tries, 2_000, 1_000, &[Rule::Refusal]);
}

#[test]
fn a_release_that_frees_another_holders_permit_is_found() {
    let rules = [Rule::Limit, Rule::Refusal, Rule::Lease];
    assert_found(&planted::FREED_TWICE, Work::Tries, 2_000, 1_000, &rules);
}
