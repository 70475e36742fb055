//! Failures: servers that cannot be reached, refuse, or reply what no script returns.

use super::Printed;
use super::forged::{self, nowhere, patient, replying, soon};
use crate::forked::in_child;
use crate::fuzz_replies::StandIn;
use crate::support::Server;
use crate::support::proxy::Proxy;

use luagate::errors::TryAcquireError;
use luagate::scripts::semaphore::{self, Ask};
use luagate::scripts::{Keys, autocomplete};
use luagate::{Credentials, Gate, Lease};
use redis::Commands;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(super) fn print(printed: &mut Printed) {
    addresses(printed);
    refusals(printed);
    an_earlier_release(printed);
    confirmations(printed);
    by_a_connection_of_the_users_own(printed);
    cluster(printed);
    sentinels(printed);
    another_version(printed);
    credentials(printed);
    late_grants(printed);
    let server = Server::any();
    let (kind, text) = forked(&server.gate());
    printed.kinds.insert(kind);
    printed.text(text);
}

fn addresses(printed: &mut Printed) {
    let silent = forged::server(|_| Some(Vec::new()));
    let http = forged::server(|_| Some(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
    for address in [&silent, &format!("user:hunter2@{silent}")] {
        printed.call(soon(&format!("redis://{address}/")).open());
    }
    for address in [&nowhere(), &http] {
        printed.call(patient(&format!("redis://{address}/")).open());
    }
}

/// Functions that return no password in time.
fn credentials(printed: &mut Printed) {
    let server = Server::any();
    let builder = || Gate::builder(&server.url);
    printed.call(builder().credentials(|| Err("the vault is closed")).open());
    printed.call(builder().credentials(|| -> Result<Credentials, String> { panic!("hunter2") }).open());
    printed.call(builder().credentials(|| Ok::<_, String>(Credentials::user("nobody", "hunter2"))).open());
    let slow = Duration::from_millis(20);
    let sleeps = move || {
        std::thread::sleep(2 * slow);
        Ok::<_, String>(Credentials::password("hunter2"))
    };
    printed.call(builder().connect_timeout(slow).credentials(sleeps).open());
    let (ended, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let blocks = move || wait.lock().unwrap().recv().map(|()| Credentials::password("hunter2"));
    printed.call(builder().read_timeout(Duration::from_secs(1)).credentials(blocks).open());
    drop(ended);
}

/// A reply that takes longer than the lease.
fn late_grants(printed: &mut Printed) {
    let Some((_server, proxy, gate)) = Proxy::with_gate() else {
        return;
    };
    let semaphore = gate.semaphore("late", 1).lease(Lease::fixed(Duration::from_millis(20)));
    proxy.delay_replies(std::iter::repeat_n(Duration::from_millis(60), 20));
    printed.error(semaphore.try_acquire());
}

/// Calls that the server refuses after the gate was opened.
fn refusals(printed: &mut Printed) {
    let replies = [
        "-NOAUTH Authentication required.\r\n",
        "-NOPERM No permissions to access a key\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        "-MOVED 1 127.0.0.1:1\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-ERR any other\r\n",
        "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
        "+OK\r\n",
        "*7\r\n$6\r\nqueued\r\n:5\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
    ];
    // At the same time: some of them are repeated for the read timeout.
    let errors = std::thread::scope(|scope| {
        let calls = replies.map(|reply| {
            scope.spawn(move || {
                let builder = patient(&format!("redis://{}/", replying(reply)));
                let gate = builder.read_timeout(Duration::from_secs(5)).open().unwrap();
                let inspected = (!reply.starts_with('*')).then(|| gate.semaphore("s", 1).inspect());
                (gate.mutex("m").try_lock(), inspected)
            })
        });
        calls.map(|call| call.join().unwrap())
    });
    for (locked, inspected) in errors {
        printed.error(locked);
        inspected.into_iter().for_each(|inspected| printed.call(inspected));
    }
    let breaks = forged::server(|words| words.contains("PING").then(|| b"+PONG\r\n".to_vec()));
    let gate = patient(&format!("redis://{breaks}/")).open().unwrap();
    printed.call(gate.semaphore("s", 1).inspect());
    printed.error(gate.mutex("m").try_lock());
}

fn an_earlier_release(printed: &mut Printed) {
    // A release that must be repeated comes before the next call with this name.
    let granted = "*7\r\n$7\r\ngranted\r\n:1\r\n:7\r\n:31000\r\n:1000\r\n:1\r\n:1\r\n";
    let gate = soon(&replies_once(granted, "")).read_timeout(Duration::from_secs(2)).open().unwrap();
    let own = gate.semaphore("s", 1).id("own");
    drop(own.try_acquire().unwrap());
    for _ in 0..2 {
        printed.error(own.try_acquire());
    }
}

/// The url of a server that answers the first script with `first`, and every later one with `later`.
fn replies_once(first: &'static str, later: &'static str) -> String {
    let scripts = Arc::new(AtomicUsize::new(0));
    let address = forged::server(move |words| {
        let reply = match words {
            words if words.contains("PING") => "+PONG\r\n",
            words if words.contains("INFO") => "$0\r\n\r\n",
            words if words.contains("EVALSHA") && scripts.fetch_add(1, Ordering::Relaxed) == 0 => first,
            _ => later,
        };
        Some(reply.into())
    });
    format!("redis://{address}/")
}

fn confirmations(printed: &mut Printed) {
    let server = Server::any();
    let builder = Gate::builder(&server.url).prefix(&server.prefix);
    let gate = builder.min_replicas(5, Duration::from_millis(20)).open().unwrap();
    printed.error(gate.mutex("m").try_lock());
    // The permanent lease begins with a second call.
    let granted = "*7\r\n$7\r\ngranted\r\n:1\r\n:7\r\n:31000\r\n:1000\r\n:1\r\n:1\r\n";
    let gate = patient(&replies_once(granted, "*2\r\n$4\r\nlost\r\n:1\r\n")).open().unwrap();
    printed.error(gate.semaphore("s", 1).lease(Lease::PERMANENT).try_acquire());
}

fn by_a_connection_of_the_users_own(printed: &mut Printed) {
    let unknown_script = redis::parse_redis_value(b"-NOSCRIPT No matching script.\r\n").unwrap();
    let mut con = StandIn { single: unknown_script.extract_error(), several: Ok(Vec::new()) };
    let keys = Keys::mutex("luagate", "m").unwrap();
    printed.call(semaphore::acquire(&mut con, &keys, &Ask { id: "id", ..Ask::default() }));
    let server = Server::any();
    let key = format!("{}:other", server.prefix);
    let _: () = server.connection().set(&key, "text").unwrap();
    printed.call(autocomplete::recent_add(&mut server.connection(), &key, "a", 1));
}

fn another_version(printed: &mut Printed) {
    let server = Server::any();
    let permit = server.gate().semaphore("newer", 1).try_acquire().unwrap();
    let newer = vec![8_u8; 60];
    let _: () = server.connection().hset(permit.keys().list()[0], "the state", newer).unwrap();
    printed.call(server.gate().semaphore("newer", 1).inspect());
}

/// The error of a child of this process: its kind and its text.
fn forked(gate: &Gate) -> (String, String) {
    let text = in_child(|| match gate.mutex("m").try_lock() {
        Err(TryAcquireError::Failed(failure)) => format!("{:?}\n{failure}", failure.kind()),
        other => format!("{other:?}\n"),
    });
    let text = text.unwrap();
    let (kind, text) = text.split_once('\n').unwrap();
    (kind.to_owned(), text.to_owned())
}

/// A node that gives `slots` in reply to `CLUSTER SLOTS`, with its own port in place of `PORT`, and `reply`
/// to scripts.
fn node(slots: &'static str, reply: &'static str) -> String {
    let port = Arc::new(AtomicUsize::new(0));
    let own = port.clone();
    let address = forged::server(move |words| {
        let reply = match words {
            words if words.contains("PING") => "+PONG\r\n".to_owned(),
            words if words.contains("SLOTS") => {
                slots.replace("PORT", &own.load(Ordering::Relaxed).to_string())
            }
            _ => reply.to_owned(),
        };
        Some(reply.into_bytes())
    });
    let (_, number) = address.split_once(':').unwrap();
    port.store(number.parse().unwrap(), Ordering::Relaxed);
    format!("redis+cluster://{address}")
}

fn cluster(printed: &mut Printed) {
    const ALL: &str = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:PORT\r\n";
    const ONE: &str = "*1\r\n*3\r\n:0\r\n:0\r\n*2\r\n$9\r\n127.0.0.1\r\n:PORT\r\n";
    printed.call(patient(&node("*0\r\n", "")).open());
    printed.call(patient(&node("+OK\r\n", "")).open());
    printed.call(patient(&node(ONE, "+OK\r\n")).open().unwrap().semaphore("s", 1).inspect());
    printed.call(patient(&node(ALL, "-MOVED 1 nowhere\r\n")).open().unwrap().semaphore("s", 1).inspect());
}

fn sentinels(printed: &mut Printed) {
    let url = |sentinel: &str| format!("redis+sentinel://{sentinel}/orders");
    printed.call(patient(&url(&replying("*-1\r\n"))).open());
    let replica = replying("*1\r\n$5\r\nslave\r\n");
    let (host, port) = replica.split_once(':').unwrap();
    let named = format!("*2\r\n${}\r\n{host}\r\n${}\r\n{port}\r\n", host.len(), port.len());
    let sentinel = forged::server(move |_| Some(named.clone().into_bytes()));
    printed.call(patient(&url(&sentinel)).open());
}
