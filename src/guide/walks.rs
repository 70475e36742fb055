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

#[track_caller]
fn assert_shown(walk: &[String]) {
    let walk = shown(walk);
    assert!(PAGE.contains(&format!("```text\n{walk}\n```")), "the page does not show:\n{walk}");
}

/// The part of a walk that begins after this function.
fn after<'a>(walk: &'a [String], function: &str) -> &'a [String] {
    let at = walk.iter().position(|place| place == function).expect(function);
    &walk[at + 1..]
}

/// The walks that end with a packet to the server.
fn writes(work: impl FnOnce()) -> Vec<Vec<String>> {
    let walks = walk::of(work).into_iter();
    walks.filter(|walk| walk.last().is_some_and(|place| place == "engine/socket.rs write_all")).collect()
}

/// The walk that passes this function. Another thread may write or read what is expected of this one. Then the
/// work is done again.
fn passing(function: &str, work: impl FnMut() -> Vec<Vec<String>>) -> Vec<String> {
    let mut walks = std::iter::repeat_with(work).take(100).flatten();
    walks.find(|walk| walk.iter().any(|place| place == function)).expect(function)
}

/// Acquires and releases, so that the next calls find a connection and the scripts.
fn warm_up(semaphore: &Semaphore) {
    semaphore.acquire().unwrap().release().unwrap();
}

#[test]
fn an_acquire_and_a_drop() {
    let (gate, _memory) = Gate::in_memory().unwrap();
    let semaphore = gate.semaphore("walk", 1);
    warm_up(&semaphore);
    let mut permit = None;
    let acquire = walk::of(|| permit = semaphore.acquire().ok());
    assert_shown(&acquire[0]);
    assert_shown(after(&acquire[1], "engine/connection.rs call"));
    assert_shown(&walk::of(|| drop(permit.take()))[0]);
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
    let walk = passing("engine/connection.rs wait_for_message", wait);
    assert_shown(after(&walk, "wait/mod.rs run"));
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
    loses.store(true, Ordering::SeqCst);
    let walks = writes(|| drop(semaphore.acquire().unwrap()));
    assert_eq!(walks.len(), 3, "{walks:?}"); // the call, the call again, and the release of the drop
    assert_eq!(walks[0], walks[1]);
}

#[test]
fn a_slot_that_has_moved() {
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
    let walks = writes(|| drop(semaphore.acquire()));
    assert!(walks[1..].contains(&walks[0]), "{walks:?}"); // to the old node, and to the new one
}
