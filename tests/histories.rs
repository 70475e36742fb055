//! Promise: whatever many processes see of a semaphore, some order of their calls explains it.

mod support;

use luagate::Gate;
use std::path::Path;
use std::time::Duration;
use support::history::client::Recorded;
use support::history::{History, Outcome, Recorder, Rules};
use support::{Server, job, process};

const LIMIT: u32 = 3;

/// A little randomness that needs no crate: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// What one thread does: asks in all ways, and holds for less or for longer than its lease.
fn live(recorder: &Recorder, gate: &Gate, seed: u64, calls: u32) {
    let mut dice = Dice(seed * 0x9e37_79b9 + 1);
    let ms = Duration::from_millis;
    let semaphore = gate.semaphore("mixed", LIMIT);
    for _ in 0..calls {
        let lease = ms([100, 200, 1_000][dice.below(3) as usize]);
        let recorded = Recorded::new(recorder, semaphore.clone(), lease);
        let permits = 1 + dice.below(2) as u32;
        let permit = match dice.below(8) {
            0..3 => recorded.try_acquire_many(permits).ok(),
            3 => recorded.try_acquire_all().ok(),
            _ => recorded
                .acquire_many_timeout(permits, ms(5 + dice.below(90)))
                .ok(),
        };
        let Some(permit) = permit else { continue };
        match dice.below(50) {
            0 => std::thread::sleep(lease + ms(5)), // its lease ends under it
            1..10 => drop(recorded.refresh(&permit)),
            10..30 => std::thread::sleep(ms(1)),
            _ => {}
        }
        recorded.is_lost(&permit);
        let _ = recorded.release(permit);
    }
}

#[test]
fn process_of_a_test() {
    let Some((_, arguments)) = job() else { return };
    let [url, prefix, folder, seed, calls] = arguments.as_slice() else {
        panic!()
    };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let recorder = Recorder::create(Path::new(folder));
    let seed: u64 = seed.parse().unwrap();
    let calls = calls.parse().unwrap();
    // The subscription stands before anything is recorded.
    drop(gate.mutex("warm").lock().unwrap());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (recorder, gate) = (&recorder, &gate);
            scope.spawn(move || live(recorder, gate, seed * 10 + thread, calls));
        }
    });
}

#[test]
fn many_processes_on_one_semaphore() {
    let server = Server::any();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let calls = std::env::var("LUAGATE_CALLS").unwrap_or("300".to_owned());
    let children: Vec<_> = (1..=8)
        .map(|seed| {
            let arguments = [&server.url, &server.prefix, path, &seed.to_string(), &calls];
            process("live", &arguments).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let history = History::read(folder.path());
    history.assert(&Rules::new(LIMIT));
    assert!(history.count(|told| matches!(told, Outcome::Lost)) > 0);
}
