//! Promise: dropping a permit releases it in the background if the server does not answer, and does not block for long.

use crate::own;
use crate::support::raw::Raw;
use crate::support::{Server, eventually, within};
use luagate::Gate;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);

#[test]
fn dropping_takes_little_time_and_the_release_follows() {
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let permit = gate.semaphore("raw", 1).lease(LONG).acquire().unwrap();
    server.pause();
    let start = Instant::now();
    drop(permit);
    assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
    server.resume();
    let mut raw = Raw::new(&server, 1);
    eventually("the background releases it", || (raw.in_use() == 0).then_some(()));
}

#[test]
fn dropping_in_the_background_does_not_wait_for_the_server() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).drop_in_background().open().unwrap();
    let (semaphore, mutex) = (gate.semaphore("raw", 100).lease(LONG), gate.mutex("m").lease(LONG));
    let permits: Vec<_> = (0..48).map(|_| semaphore.acquire().unwrap()).collect();
    let wants = [(gate.semaphore("{g}:a", 100), 1), (gate.semaphore("{g}:b", 100), 1)];
    let several =
        || gate.several(wants.iter().map(|(semaphore, permits)| (semaphore, *permits))).try_acquire().unwrap();
    let several: Vec<_> = (0..48).map(|_| several()).collect();
    let guard = mutex.lock().unwrap();
    server.pause();
    let start = Instant::now();
    drop((permits, several, guard));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}; with a wait for each it is 10 s", start.elapsed());
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
    let permit = gate.semaphore("raw", 1).lease(LONG).acquire().unwrap();
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
    let permit = gate.semaphore("raw", 1).lease(LONG).acquire().unwrap();
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
