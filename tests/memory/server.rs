//! Promise: users' scripts and other clients can use the in-memory server as a Redis. A test can read it,
//! fill it and end it.

use crate::{HOUR, MINUTE, eventually, finished, in_line, memory};

use luagate::errors::{FailureKind, TryAcquireError};
use luagate::scripts::HOLDS;
use luagate::{Gate, Lease, Semaphore};
use redis::Commands;
use std::net::TcpStream;

#[test]
fn a_users_script_writes_only_while_its_permit_is_held() {
    let (gate, memory) = memory();
    let mut con = memory.connection().unwrap();
    let write = redis::Script::new(&format!(
        "{HOLDS}
        if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 0 end
        redis.call('SET', KEYS[4], ARGV[3])
        return 1"
    ));
    let lock = gate.mutex("account").with(|lock| lock.lease(Lease::fixed(MINUTE))).lock().unwrap();
    let balance = format!("balance:{{{}}}", lock.keys().tag());
    let mut write = |text: &str| -> bool {
        let mut call = write.key(&lock.keys().list());
        let call = call.key(&balance).arg((lock.id(), lock.fence())).arg(text);
        call.invoke(&mut con).unwrap()
    };
    assert!(write("100"));
    memory.suspend(MINUTE);
    assert!(!write("200"));
    let text: String = con.get(&balance).unwrap();
    assert_eq!(text, "100");
}

#[test]
fn other_clients_can_use_the_server_as_a_redis() {
    let (gate, memory) = memory();
    let mut subscriber = memory.connection().unwrap();
    let mut subscriber = subscriber.as_pubsub();
    subscriber.subscribe(&["news", "sports"]).unwrap();
    let mut con = memory.connection().unwrap();
    let received: u32 = con.publish("sports", "1:0").unwrap();
    assert_eq!(received, 1);
    let message = subscriber.get_message().unwrap();
    assert_eq!(message.get_channel_name(), "sports");
    assert_eq!(message.get_payload::<String>().unwrap(), "1:0");
    subscriber.unsubscribe("sports").unwrap();
    let pong: redis::Value = subscriber.ping().unwrap();
    assert_ne!(pong, redis::Value::Nil);
    let received: u32 = con.publish("sports", "2:0").unwrap();
    assert_eq!(received, 0);
    // Another gate by the URL, as in a process that the test starts.
    let desk = gate.semaphore("desk", 1);
    let held = desk.try_acquire().unwrap();
    let other = Gate::open(&memory.url()).unwrap();
    assert!(other.semaphore("desk", 1).try_acquire().is_err());
    held.release().unwrap();
    assert!(other.semaphore("desk", 1).try_acquire().is_ok());
}

#[test]
fn full_memory_can_be_simulated() {
    let (gate, memory) = memory();
    let seats = gate.semaphore("seats", 2);
    let held = seats.try_acquire().unwrap();
    memory.with_server(|server| server.set_full(true));
    match seats.try_acquire() {
        Err(TryAcquireError::Failed(failure)) => {
            assert_eq!(failure.kind(), FailureKind::OutOfMemory);
        }
        other => panic!("{other:?}"),
    }
    held.refresh().unwrap();
    held.release().unwrap();
}

#[test]
fn the_server_ends_with_its_last_user() {
    let (gate, memory) = memory();
    let address = memory.url();
    let address = address.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let port = address.rsplit(':').next().unwrap().to_owned();
    let mut foreign = memory.connection().unwrap();
    drop(memory);
    let desk = gate.semaphore("desk", 1);
    let held = desk.try_acquire().unwrap();
    let waiter = in_line(&desk, Semaphore::acquire);
    drop((gate, desk));
    held.release().unwrap();
    let held = finished(waiter).unwrap();
    assert!(TcpStream::connect(&address).is_ok());
    assert!(!cfg!(target_os = "linux") || threads_of(&port) > 1);
    held.release().unwrap();
    eventually("nobody listens", || TcpStream::connect(&address).is_err());
    eventually("the server's threads end", || threads_of(&port) == 0);
    assert!(redis::cmd("PING").exec(&mut foreign).is_err());
}

/// The number of threads that serve this port; their names contain it. 0 on systems without `/proc`.
fn threads_of(port: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    names.filter(|name| matches!(name, Ok(name) if name.trim_end() == format!("luagate:{port}"))).count()
}

#[test]
fn a_test_can_read_the_keys_of_the_server() {
    let (gate, memory) = memory();
    let mut con = memory.connection().unwrap();
    let held = gate.semaphore("desk", 1).lease(Lease::fixed(MINUTE)).try_acquire().unwrap();
    let mut keys: Vec<String> = con.keys("luagate:*{desk}").unwrap();
    keys.sort();
    assert_eq!(keys, ["luagate:semaphore.holders:{desk}", "luagate:semaphore:{desk}"]);
    let scanned: Vec<String> = con.scan().unwrap().map(Result::unwrap).collect();
    assert_eq!(scanned.len(), 2);
    let exists: bool = con.exists(&keys[0]).unwrap();
    assert!(exists);
    let ttl: i64 = con.ttl(&keys[0]).unwrap();
    assert!((60..=120).contains(&ttl), "{ttl}");
    drop(held);
    memory.suspend(HOUR);
    let left: u64 = redis::cmd("DBSIZE").query(&mut con).unwrap();
    assert_eq!(left, 0); // nothing is left behind
    let _: () = con.set("mine", 1).unwrap();
    redis::cmd("FLUSHALL").exec(&mut con).unwrap();
    let mine: Option<i64> = con.get("mine").unwrap();
    assert_eq!(mine, None);
}

#[test]
fn names_match_patterns_as_in_redis() {
    let (_, memory) = memory();
    let mut con = memory.connection().unwrap();
    for (pattern, name, expected) in [
        ("*", "", true),
        ("a*", "abc", true),
        ("a*c", "abcd", false),
        ("a*c*", "abcd", true),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        (r"a\*", "a*", true),
        (r"a\*", "ab", false),
        ("abc", "ab", false),
    ] {
        let () = con.set(name, "value").unwrap();
        let found: Vec<String> = con.keys(pattern).unwrap();
        assert_eq!(found == [name], expected, "{pattern} {name}");
        let () = con.del(name).unwrap();
    }
}
