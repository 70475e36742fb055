//! Promise: a wait that lacks a permission fails with an error that says so. A waiter that may not receive
//! messages does not delay the waiters behind it. On a server without the message commands, waiters poll.

use super::everything::{until_waiting, wait, waiting};
use super::{MINUTE, REPORTED, as_user, assert_refused, permit};
use crate::own;
use crate::support::raw::{Listener, Raw};
use crate::support::{self, SOON, Server, eventually};

use luagate::scripts::semaphore::{self, Ask, LookupAnswer, ReleaseAnswer};
use luagate::{Gate, Lease};
use redis::Connection;
use std::time::{Duration, Instant};

#[test]
fn a_permission_that_is_granted_later_is_used_by_the_next_wait() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    permit(&mut admin, &["+subscribe"]);
    let gate = Gate::open(&as_user(&server.url)).unwrap();
    let semaphore = gate.semaphore("all", 2);
    let held = semaphore.acquire_many(2).unwrap();
    for _ in 0..2 {
        let error = semaphore.acquire_timeout(MINUTE).unwrap_err();
        assert_refused(&error.into(), "+subscribe");
    }
    permit(&mut admin, &[]);
    held.release().unwrap();
    wait(&semaphore, &mut admin).unwrap();
}

#[test]
fn a_permission_that_is_taken_away_ends_the_wait() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    permit(&mut admin, &[]);
    let gate = Gate::open(&as_user(&server.url)).unwrap();
    let semaphore = gate.semaphore("all", 1);
    let _held = semaphore.acquire().unwrap();
    let queue = "luagate:semaphore.queue:{all}";
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE));
        until_waiting(&mut admin, queue, &waiter);
        permit(&mut admin, &["&luagate:inbox:*"]);
        let start = Instant::now();
        support::kill_connections(&mut admin, "pubsub"); // Redis may have closed it already
        let error = waiter.join().unwrap().unwrap_err();
        assert_refused(&error.into(), "&luagate:inbox:*");
        assert!(start.elapsed() < REPORTED, "{:?}", start.elapsed());
    });
    eventually("the waiter left the line", || (waiting(&mut admin, queue) == 0).then_some(()));
}

#[test]
fn a_waiter_whose_channel_the_script_may_not_publish_to_is_skipped() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    let mut raw = Raw::new(&server, 1);
    let (hidden, mut open) = (Listener::new(&server, "hidden"), Listener::new(&server, "open"));
    let teller = ["SETUSER", "teller", "on", ">password", "~*", "+@all", "resetchannels"];
    let mut setuser = redis::cmd("ACL");
    setuser.arg(&teller).arg(format!("&{}", open.channel));
    setuser.exec(&mut admin).unwrap();
    let url = server.url.replace("redis://", "redis://teller:password@");
    let mut teller = redis::Client::open(url).unwrap().get_connection().unwrap();
    // The second time there is no other waiter.
    for next in ["second", "nobody"] {
        let holder = raw.grant(raw.ask("holder"));
        let line = [("first", &hidden.channel), ("second", &open.channel)];
        for (id, channel) in line.iter().take(if next == "second" { 2 } else { 1 }) {
            raw.queue(Ask { wait_ms: 15_000, inbox: &format!("{channel}#secret"), ..raw.ask(id) });
        }
        let released = semaphore::release(&mut teller, &raw.keys, "holder", 0, None).unwrap();
        let in_use = u32::from(next == "second");
        assert!(
            matches!(released, ReleaseAnswer::Released { left: 0, usage } if usage.in_use == in_use),
            "{released:?}"
        );
        assert!(matches!(raw.lookup("first"), LookupAnswer::Gone { .. }));
        assert_eq!((raw.in_use(), raw.inspect().waiter_count), (in_use, 0));
        if next == "second" {
            let reported = open.next_grant();
            assert_eq!(reported[0], "second");
            assert!(reported[2].parse::<u64>().unwrap() > holder.fence);
            raw.assert_released("second");
        }
    }
}

/// The total number of connections that the server has accepted.
fn connections(con: &mut Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("stats").query(con).unwrap();
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
    count.unwrap().parse().unwrap()
}

#[test]
fn waiters_poll_on_a_server_without_the_message_commands() {
    // Like a proxy without publish and subscribe: the command is unknown, not forbidden.
    for unknown in ["PUBSUB", "SUBSCRIBE"] {
        let server = own!(Server::private(&["--rename-command", unknown, ""]));
        let mut con = server.connection();
        let semaphore = server.gate().semaphore("polled", 1);
        let held = semaphore.clone().lease(Lease::fixed(Duration::from_secs(1))).acquire().unwrap();
        let before = connections(&mut con);
        let start = Instant::now();
        let granted = semaphore.acquire_timeout(MINUTE).unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert!(granted.fence() > held.fence());
        let made = connections(&mut con) - before;
        assert!(made <= 2, "{unknown}: it keeps reconnecting: {made} connections");
    }
}
