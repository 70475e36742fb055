//! Promise: dropping a permit releases it in the background if the server does not answer, and does not block
//! for long. Later calls of the gate for the same name run after the release.

use crate::own;
use crate::support::circles;
use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually, process, within};
use luagate::{Gate, Lease};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);

/// How many processes exit right after a drop.
const EXITS: usize = 300;

#[test]
fn dropping_takes_little_time_and_the_release_follows() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).read_timeout(6 * SOON).open().unwrap();
    let permit = gate.semaphore("raw", 1).lease(Lease::fixed(LONG)).acquire().unwrap();
    server.pause();
    let start = Instant::now();
    drop(permit);
    assert!(start.elapsed() < SOON, "{:?}: it waited for the server", start.elapsed());
    server.resume();
    let mut raw = Raw::new(&server, 1);
    eventually("the background releases it", || (raw.in_use() == 0).then_some(()));
}

#[test]
fn dropping_in_the_background_does_not_wait_for_the_server() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).read_timeout(6 * SOON).open().unwrap();
    let (semaphore, mutex) = (
        gate.semaphore("raw", 100).lease(Lease::fixed(LONG)),
        gate.mutex("m").with(|lock| lock.lease(Lease::fixed(LONG))),
    );
    let permits: Vec<_> = (0..48).map(|_| semaphore.acquire().unwrap()).collect();
    let wants = [(gate.semaphore("{g}:a", 100), 1), (gate.semaphore("{g}:b", 100), 1)];
    let several = || {
        gate.several(wants.iter().map(|(semaphore, permits)| (semaphore, *permits))).try_acquire().unwrap()
    };
    let several: Vec<_> = (0..48).map(|_| several()).collect();
    let guard = mutex.lock().unwrap();
    server.pause();
    let start = Instant::now();
    drop((permits, several, guard));
    assert!(start.elapsed() < SOON, "{:?}: it waited for the server", start.elapsed());
    server.resume();
    let all = [&semaphore, &wants[0].0, &wants[1].0];
    eventually("the background releases all", || {
        let in_use = all.map(|semaphore| semaphore.inspect().unwrap().in_use);
        (in_use == [0; 3] && mutex.inspect().unwrap().in_use == 0).then_some(())
    });
}

#[test]
fn a_drop_during_an_outage_releases_when_the_server_returns() {
    let mut server = own!(Server::private(&["--appendonly", "yes", "--appendfsync", "always"]));
    let gate = server.gate();
    let permit = gate.semaphore("raw", 1).lease(Lease::fixed(LONG)).acquire().unwrap();
    server.kill();
    drop(permit);
    server.start_again();
    let mut raw = Raw::new(&server, 1);
    eventually("the background releases it", || (raw.in_use() == 0).then_some(()));
}

#[test]
fn a_pending_release_follows_soon_after_any_outage() {
    let on_disk = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = own!(Server::private(&on_disk));
    let gate = server.gate();
    let permit = gate.semaphore("raw", 1).lease(Lease::fixed(LONG)).acquire().unwrap();
    server.kill();
    drop(permit);
    // If each pause doubled, the next pause would be about as long as all earlier ones together.
    let away = Duration::from_secs(7);
    std::thread::sleep(away);
    server.start_again();
    let mut raw = Raw::new(&server, 1);
    let released = within(away / 2, || (raw.in_use() == 0).then_some(()));
    assert!(released.is_some(), "the permit is still held");
}

/// 32 threads of one gate hand eight permits on.
fn threads_hand_permits_on(server: &Server, rounds: usize) {
    let names: Vec<_> = (0..8).map(|circle| format!("s:{circle}")).collect();
    circles::hand_on(&server.gate(), &names, rounds);
}

/// In a process of its own: takes a permit, drops it, and ends at once.
pub fn drop_and_exit(arguments: &[String]) {
    let [url, prefix, name] = arguments else { panic!("{arguments:?}") };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    drop(gate.semaphore(name, 1).lease(Lease::fixed(LONG)).try_acquire().unwrap());
    std::process::exit(0);
}

#[test]
fn a_process_that_drops_its_permit_and_exits_at_once_leaves_nothing_held() {
    let server = own!(Server::private(&[]));
    let lanes: Vec<String> = (0..4).map(|lane| format!("lane:{lane}")).collect();
    std::thread::scope(|scope| {
        for name in &lanes {
            let server = &server;
            scope.spawn(move || {
                let semaphore = server.gate().semaphore(name, 1);
                for round in 0..EXITS / 4 {
                    let mut dropper = process("drop", &[&server.url, &server.prefix, name]);
                    assert!(dropper.status().unwrap().success(), "round {round}");
                    // The server may still have to read what the process has sent.
                    let released = within(SOON, || (semaphore.inspect().unwrap().in_use == 0).then_some(()));
                    assert!(released.is_some(), "round {round}");
                }
            });
        }
    });
}

#[test]
fn whoever_learns_of_a_drop_in_another_thread_of_the_gate_gets_the_permit_at_once() {
    threads_hand_permits_on(&Server::any(), 300);
}

#[test]
fn whoever_learns_of_a_drop_gets_the_permit_although_the_server_had_no_scripts() {
    for _ in 0..20 {
        threads_hand_permits_on(&own!(Server::private(&[])), 1);
    }
}

#[test]
fn whoever_learns_of_a_drop_gets_the_permit_although_the_server_loses_its_scripts() {
    let server = own!(Server::private(&[]));
    circles::while_scripts_are_lost(&server, || threads_hand_permits_on(&server, 100));
}
