//! Promise: many messages make a waiter neither ask more often nor wait longer.

use super::{LONG, MINUTE, channel_of, forgeries, let_it_read, publish, wait_for_permit, waiter_of};
use crate::own;
use crate::support::raw::{Listener, Raw};
use crate::support::{Server, command_counts, eventually, reset_counts};

use luagate::Gate;
use luagate::errors::AcquireError;
use luagate::scripts::semaphore::Ask;
use redis::{Commands, Connection};
use std::time::{Duration, Instant};

fn scripts_run(con: &mut Connection) -> u64 {
    command_counts(con).get("evalsha").copied().unwrap_or(0)
}

#[test]
fn forged_and_repeated_hints_do_not_make_a_waiter_ask() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 2);
    for id in ["first", "second"] {
        raw.grant(Ask { lease_ms: LONG, ..raw.ask(id) });
    }
    for n in 0..150 {
        raw.queue(Ask { wait_ms: LONG, inbox: "nobody:listens", ..raw.ask(&format!("dead-{n}")) });
    }
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 2);
    let channel = channel_of(&server);
    let id = eventually("the client is in line", || {
        let last = raw.inspect().waiters.pop()?;
        (!last.id.starts_with("dead")).then_some(last.id)
    });
    // The script stops after a hundred dropped waiters and sends the client a hint to ask at once. That call
    // finds one permit free.
    let mut listener = Listener::on(&server, &channel);
    raw.assert_released("first");
    let hint = listener.next();
    assert_eq!((&hint[0], &hint[1..4]), (&id, &["0", "0", "0"].map(String::from)[..]));
    eventually("the client has asked and is the head", || {
        (raw.inspect().waiters.first()?.id == id).then_some(())
    });
    let mut stranger = server.connection();
    reset_counts(&mut raw.con);
    for payload in forgeries(&id, 2, hint[4].parse().unwrap()) {
        publish(&mut stranger, &channel, &payload);
    }
    for _ in 0..5_000 {
        publish(&mut stranger, &channel, hint.join(" ").as_bytes());
    }
    // The server has sent all messages before this reply. So `let_it_read` takes little time, and its checks
    // few scripts.
    gate.semaphore("sync", 1).inspect().unwrap();
    let_it_read(&server, &gate);
    let ran = scripts_run(&mut raw.con);
    // These include the calls of `let_it_read` and a few of the waiter.
    assert!(ran < 60, "{ran} scripts were run");
    assert!(!waiting.is_finished());
    raw.assert_released("second");
    assert!(raw.holds(waiting.join().unwrap().id()));
}

#[test]
fn a_flood_of_messages_makes_no_wait_longer() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: LONG, ..raw.ask("holder") });
    let gate = Gate::builder(&server.url).prefix(&server.prefix).read_timeout(MINUTE).open().unwrap();
    let asks = gate.semaphore("raw", 1);
    let waiting = std::thread::spawn(move || {
        let begun = Instant::now();
        (asks.acquire_timeout(Duration::from_secs(1)).unwrap_err(), begun.elapsed())
    });
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    let mut stranger = server.connection();
    let latch = gate.latch("flooded", 1);
    let latch_key = format!("{}:latch:{{flooded}}", server.prefix);
    let opens = std::thread::spawn(move || latch.wait_timeout(MINUTE));
    let mut flood = redis::pipe();
    for n in 0..100 {
        flood.publish(&channel, format!("{id} 1 {n} -1 1")).ignore();
        flood.publish(&channel, format!("{latch_key} 0 0 0 {n}")).ignore();
    }
    while !waiting.is_finished() {
        flood.exec(&mut stranger).unwrap();
    }
    let (error, took) = waiting.join().unwrap();
    assert!(matches!(error, AcquireError::TimedOut(_)), "{error}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(!opens.is_finished());
    gate.latch("flooded", 1).count_down().unwrap();
    opens.join().unwrap().unwrap();
}

#[test]
fn a_flood_of_messages_for_a_latch_does_not_make_its_waiters_spin() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let latch = gate.latch("flooded", 1);
    let latch_key = format!("{}:latch:{{flooded}}", server.prefix);
    let waits = latch.clone();
    let waiting = std::thread::spawn(move || waits.wait_timeout(MINUTE));
    let channel = channel_of(&server);
    let mut con = server.connection();
    eventually("the waiter is subscribed", || {
        let waiters = format!("{}:latch.waiters:{{flooded}}", server.prefix);
        let count: u32 = con.zcard(waiters).unwrap();
        (count > 0).then_some(())
    });
    reset_counts(&mut con);
    let begun = Instant::now();
    let mut sent = 0_u32;
    while begun.elapsed() < Duration::from_secs(1) {
        publish(&mut con, &channel, format!("{latch_key} 0 0 0 {sent}").as_bytes());
        sent += 1;
    }
    let ran = scripts_run(&mut con);
    assert!(ran < 40, "{ran} scripts were run after {sent} messages");
    latch.count_down().unwrap();
    waiting.join().unwrap().unwrap();
}
