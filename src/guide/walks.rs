//! Promise: the page about the internals shows the functions that a call passes, as a trace has them.

use crate::engine::walk;
use crate::memory::Memory;
use crate::{Gate, Semaphore};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGE: &str = include_str!("internals.md");

/// What becomes of a packet that a client sends.
enum Fate {
    Forwarded,
    Answered(String),
    /// The connection breaks instead of an answer.
    Lost,
}

/// A proxy before the server. Returns its port.
fn proxy(server: &Memory, mut fate: impl FnMut(&[u8]) -> Fate + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = server.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let fate = Arc::new(Mutex::new(move |packet: &[u8]| fate(packet)));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut replies, mut answers) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut replies, &mut answers));
            let fate = fate.clone();
            std::thread::spawn(move || -> io::Result<()> {
                let mut packet = [0; 10_000];
                loop {
                    let length = client.read(&mut packet)?;
                    if length == 0 {
                        return server.shutdown(Shutdown::Both);
                    }
                    match fate.lock().unwrap()(&packet[..length]) {
                        Fate::Forwarded => server.write_all(&packet[..length])?,
                        Fate::Answered(reply) => client.write_all(reply.as_bytes())?,
                        Fate::Lost => return client.shutdown(Shutdown::Both),
                    }
                }
            });
        }
    });
    port
}

/// A packet that calls a script by its hash.
fn is_call(packet: &[u8]) -> bool {
    String::from_utf8_lossy(packet).contains("EVALSHA")
}

/// The way to a place, as the page shows it: each line has a file and its functions.
fn shown(walk: &[String]) -> String {
    let places: Vec<(&str, &str)> = walk.iter().filter_map(|place| place.split_once(' ')).collect();
    let lines = places.chunk_by(|one, next| one.0 == next.0).map(|of_file| {
        let functions: Vec<&str> = of_file.iter().map(|(_, function)| *function).collect();
        format!("{:<20}  {}", of_file[0].0, functions.join(", "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether the page shows the part of this walk that begins after this function.
fn is_shown_after(function: &str, walk: &[String]) -> bool {
    let at = walk.iter().position(|place| place == function);
    at.is_some_and(|at| is_shown(&walk[at + 1..]))
}

fn is_shown(walk: &[String]) -> bool {
    PAGE.contains(&format!("```text\n{}\n```", shown(walk)))
}

/// The walks that end with a packet to the server.
fn writes(walks: &[Vec<String>]) -> Vec<&Vec<String>> {
    walks
        .iter()
        .filter(|walk| walk.last().is_some_and(|place| place == "engine/socket.rs write_all"))
        .collect()
}

/// Another thread may write or read what is expected of this one. Then the work is done again.
#[track_caller]
fn assert_seen(mut work: impl FnMut() -> Vec<Vec<String>>, is_expected: impl Fn(&[Vec<String>]) -> bool) {
    let mut walks = Vec::new();
    for _ in 0..100 {
        walks = work();
        if is_expected(&walks) {
            return;
        }
    }
    let walks: Vec<String> = walks.iter().map(|walk| shown(walk)).collect();
    panic!("not what is expected, or not on the page:\n{}", walks.join("\n\n"));
}

/// Acquires and releases, so that the next calls find a connection and the scripts.
fn warm_up(semaphore: &Semaphore) {
    semaphore.acquire().unwrap().release().unwrap();
}

#[test]
fn an_acquire() {
    let (gate, _memory) = Gate::in_memory().unwrap();
    let semaphore = gate.semaphore("walk", 1);
    warm_up(&semaphore);
    let acquire = || {
        let mut permit = None;
        walk::of(|| permit = semaphore.acquire().ok())
    };
    assert_seen(acquire, |walks| {
        let [write, read] = walks else { return false };
        is_shown(write) && is_shown_after("engine/connection.rs call", read)
    });
}

#[test]
fn an_acquire_that_waits() {
    let wait = || {
        let memory = Memory::new().unwrap();
        let gate = Gate::open(&memory.url()).unwrap();
        let semaphore = gate.semaphore("walk", 1);
        let mut held = Some(semaphore.acquire().unwrap());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| walk::of(|| drop(semaphore.acquire().unwrap())));
            while semaphore.inspect().unwrap().waiter_count == 0 {
                std::thread::yield_now();
            }
            drop(held.take());
            waiting.join().unwrap()
        })
    };
    assert_seen(wait, |walks| {
        let waits = |walk: &&Vec<String>| walk.contains(&"engine/connection.rs wait_for_message".to_owned());
        walks.iter().find(waits).is_some_and(|walk| is_shown_after("wait/mod.rs run", walk))
    });
}

#[test]
fn a_drop() {
    let (gate, _memory) = Gate::in_memory().unwrap();
    let semaphore = gate.semaphore("walk", 1);
    warm_up(&semaphore);
    let dropped = || {
        let permit = semaphore.acquire().unwrap();
        walk::of(|| drop(permit))
    };
    assert_seen(dropped, |walks| walks.first().is_some_and(|write| is_shown(write)));
}

#[test]
fn a_lost_reply() {
    let memory = Memory::new().unwrap();
    let loses = Arc::new(AtomicBool::new(false));
    let armed = loses.clone();
    let port = proxy(&memory, move |packet| match is_call(packet) && armed.swap(false, Ordering::SeqCst) {
        true => Fate::Lost,
        false => Fate::Forwarded,
    });
    let gate = Gate::builder(&format!("redis://127.0.0.1:{port}"));
    let gate = gate.read_timeout(Duration::from_secs(60)).open().unwrap();
    let semaphore = gate.semaphore("walk", 1);
    warm_up(&semaphore);
    let acquire = || {
        loses.store(true, Ordering::SeqCst);
        walk::of(|| drop(semaphore.acquire().unwrap()))
    };
    assert_seen(acquire, |walks| {
        let writes = writes(walks); // the call, the call again, and the release of the drop
        writes.len() == 3 && writes[0] == writes[1]
    });
}

#[test]
fn a_slot_that_has_moved() {
    let acquire = || {
        let memory = Memory::new().unwrap();
        let other = memory.url().rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
        let (moves, own) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU16::new(0)));
        let (armed, shared) = (moves.clone(), own.clone());
        let port = proxy(&memory, move |packet| {
            let own = shared.load(Ordering::SeqCst);
            if String::from_utf8_lossy(packet).contains("SLOTS") {
                let node = format!("*2\r\n$9\r\n127.0.0.1\r\n:{own}\r\n");
                return Fate::Answered(format!("*1\r\n*3\r\n:0\r\n:16383\r\n{node}"));
            }
            match is_call(packet) && armed.swap(false, Ordering::SeqCst) {
                true => Fate::Answered(format!("-MOVED 1 127.0.0.1:{other}\r\n")),
                false => Fate::Forwarded,
            }
        });
        own.store(port, Ordering::SeqCst);
        let gate = Gate::open(&format!("redis+cluster://127.0.0.1:{port}")).unwrap();
        let semaphore = gate.semaphore("walk", 1);
        warm_up(&semaphore);
        moves.store(true, Ordering::SeqCst);
        walk::of(|| drop(semaphore.acquire()))
    };
    assert_seen(acquire, |walks| {
        let writes = writes(walks); // to the old node, and to the new one
        writes.len() > 1 && writes[1..].contains(&writes[0])
    });
}
