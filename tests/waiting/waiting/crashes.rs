//! Promise: waiters and holders whose process has ended delay the others by at most a lease or one recheck.

use super::{MINUTE, await_waiters, held};
use crate::support::raw::Raw;
use crate::support::{Server, process};

use luagate::scripts::semaphore::Ask;
use luagate::{Gate, Lease};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

#[test]
fn a_waiter_behind_three_thousand_vanished_ones_is_granted_within_its_recheck() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(held(&raw));
    for n in 0..3_000 {
        raw.queue(Ask { wait_ms: 600_000, inbox: "nobody:listens", ..raw.ask(&format!("w{n}")) });
    }
    let semaphore = server.gate().semaphore("raw", 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).unwrap().release().unwrap());
        await_waiters(&mut raw, 3_001);
        let start = Instant::now();
        raw.assert_released("holder");
        waiter.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    });
}

/// A process that acquires, prints so, and holds until it receives a line or is killed.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(server: &Server, label: &str) -> Worker {
        let mut child = process("worker", &[&server.url, &server.prefix, label]).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Worker { child, input, output }
    }

    fn await_line(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim() != word {
            line.clear();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the worker ended before it printed {word}"
            );
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The main function of a worker process.
pub fn work(arguments: &[String]) {
    let [url, prefix, label] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).label(label).open().unwrap();
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(Duration::from_secs(2)));
    println!("\nstarted");
    let permit = semaphore.acquire().unwrap();
    println!("inside");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
    permit.release().unwrap();
}

#[test]
fn killed_waiters_delay_no_one_and_killed_holders_only_for_their_lease() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut holder = Worker::start(&server, "holder");
    holder.await_line("inside");
    let waiter = Worker::start(&server, "waiter");
    await_waiters(&mut raw, 1);
    let mut next = Worker::start(&server, "next");
    await_waiters(&mut raw, 2);
    let state = raw.inspect();
    assert!(state.waiters[0].id.starts_with("waiter/"));
    let lease_end = state.holders[0].expires_at.unwrap();
    waiter.kill();
    holder.kill();
    // The killed waiter is first in line and delays no one. The killed holder delays the next waiter until
    // its lease ends.
    next.await_line("inside");
    let state = raw.inspect();
    assert!(state.holders[0].id.starts_with("next/"));
    let late = state.holders[0].fence / 1_000 - lease_end;
    assert!(late < 1_000, "{late} ms after the end of the lease");
    next.input.write_all(b"leave\n").unwrap();
    assert!(next.child.wait().unwrap().success());
    assert_eq!(raw.in_use(), 0);
}
