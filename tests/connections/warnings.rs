//! Promise: a gate warns once that its server could evict locks and semaphores. This check never prevents a gate from
//! opening.

use crate::own;
use crate::support::Server;

use luagate::{Gate, Warning};
use std::time::{Duration, Instant};

const BOUND: [&str; 2] = ["--maxmemory", "100mb"];

fn with_policy(policy: &str) -> Option<Server> {
    let arguments = [BOUND.as_slice(), &["--maxmemory-policy", policy]].concat();
    Server::private(&arguments)
}

#[test]
fn a_server_that_can_evict_is_reported_once() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = own!(with_policy(policy));
        let gate = server.gate();
        drop(gate.semaphore("evicts", 1).acquire().unwrap());
        let warnings = gate.clone().warnings();
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        let Warning::Evicts { server: address, policy: reported, maxmemory, .. } = warning else {
            panic!("{warning:?}")
        };
        assert_eq!((reported.as_str(), *maxmemory), (policy, 100 << 20));
        assert!(server.url.ends_with(address.as_str()), "{address}");
        let text = warning.to_string();
        assert!(text.contains("noeviction") && text.contains(policy), "{text}");
    }
}

#[test]
fn a_server_that_evicts_nothing_gives_no_warning() {
    let refuses = own!(with_policy("noeviction"));
    assert_eq!(refuses.gate().warnings(), []);
    let unbounded = own!(Server::private(&["--maxmemory-policy", "allkeys-lru"]));
    assert_eq!(unbounded.gate().warnings(), []);
}

#[test]
fn a_user_without_the_permission_for_the_check_can_open_the_gate() {
    let server = own!(with_policy("allkeys-lru"));
    let mut con = server.connection();
    let mut user = |name: &str, rights: &[&str]| {
        let mut acl = redis::cmd("ACL");
        acl.arg("SETUSER").arg(name).arg("on").arg(">secret");
        acl.arg(rights).exec(&mut con).unwrap();
        let url = server.url.replace("unix://", "redis+unix://");
        let gate = Gate::builder(&format!("{url}?user={name}&pass=secret"));
        gate.prefix(&server.prefix).open().unwrap()
    };
    let all = ["~*", "&*", "+@all"];
    let may_not = user("locker", &[all.as_slice(), &["-info"]].concat());
    assert_eq!(may_not.warnings(), []);
    drop(may_not.semaphore("locked", 1).acquire().unwrap());
    assert_eq!(may_not.counters().reconnects, 0);
    let may = user("monitor", &all);
    let warnings = may.warnings();
    assert_eq!(warnings.len(), 1);
    let reported = format!("{warnings:?} {}", warnings[0]);
    assert!(!reported.contains("secret") && !reported.contains("monitor"), "{reported}");
}

#[cfg(feature = "memory")]
#[test]
fn an_in_memory_server_gives_no_warning() {
    let (gate, _memory) = Gate::in_memory().unwrap();
    assert_eq!(gate.warnings(), []);
}

#[test]
fn a_server_that_never_answers_the_check_delays_opening_only_shortly() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let (closes, closed) = std::sync::mpsc::channel();
    // A proxy that swallows every command that it does not know.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, closes) = (stream.unwrap(), closes.clone());
            std::thread::spawn(move || {
                let mut call = [0; 4_096];
                while let Ok(count @ 1..) = stream.read(&mut call) {
                    if call[..count].windows(4).any(|word| word == b"PING") {
                        stream.write_all(b"+PONG\r\n").unwrap();
                    }
                }
                closes.send(()).unwrap();
            });
        }
    });
    let begun = Instant::now();
    let gate = Gate::builder(&url).read_timeout(Duration::from_secs(60)).open().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(gate.warnings(), []);
    closed.recv_timeout(Duration::from_secs(30)).expect("the connection that waits for the reply must be closed");
}

#[test]
fn each_master_is_checked_when_it_is_first_used() {
    let server = own!(Server::cluster_node());
    let mut con = server.connection();
    for (setting, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(setting).arg(value);
        set.exec(&mut con).unwrap();
    }
    let url = server.url.replace("redis://", "redis+cluster://");
    let gate = Gate::builder(&url).prefix(&server.prefix).open().unwrap();
    assert_eq!(gate.warnings(), [], "the server is not used yet");
    for name in ["one", "two"] {
        drop(gate.semaphore(name, 1).acquire().unwrap());
    }
    let warnings = gate.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}
