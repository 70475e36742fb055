//! Promise: with TLS everything works as without, and what is wrong with it is said so that a reader knows what to do.

use crate::own;
use crate::own_tls;
#[cfg(feature = "cluster")]
use crate::support::cluster::Cluster;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use crate::support::group::Start;
#[cfg(feature = "sentinel")]
use crate::support::sentinel::{MASTER, Sentinels};
use crate::support::{self, Server, eventually, process};
use crate::tls_server::{Authority, Identity};

#[cfg(feature = "cluster")]
use luagate::autocomplete::Recent;
use luagate::errors::{CallError, Failure, FailureKind, TryAcquireError};
use luagate::{Gate, GateBuilder};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// A message comes sooner than this; who hears none asks after 5 s.
const TOLD: Duration = Duration::from_secs(3);

/// A gate's settings with both certificates.
fn both(url: &str, authority: &Authority, own: &Identity) -> GateBuilder {
    Gate::builder(url).root_certificates(&authority.pem).client_certificate(&own.chain, &own.key)
}

#[track_caller]
fn failure(opened: Result<Gate, CallError>) -> Failure {
    match opened {
        Err(CallError::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

/// Opening fails for a reason of TLS, and every one of `words` is said of it.
#[track_caller]
fn assert_told(opened: Result<Gate, CallError>, words: &[&str]) {
    let failure = failure(opened);
    assert_eq!(failure.kind(), FailureKind::Tls, "{failure}");
    for word in words {
        assert!(failure.to_string().contains(word), "no {word} in: {failure}");
    }
}

/// Acquires, waits in line, is woken by a message, renews, counts down.
fn use_it(server: &Server, gate: &Gate) {
    let semaphore = gate.semaphore("all", 1).lease(Duration::from_secs(3));
    let held = semaphore.clone().auto_renew().try_acquire().unwrap();
    assert!(semaphore.try_acquire().is_err());
    let fence = held.fence();
    let granted = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (semaphore.acquire().unwrap(), Instant::now()));
        eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        let end = Instant::now() + Duration::from_millis(3_500);
        let kept = support::within(Duration::from_secs(4), || (Instant::now() > end).then_some(()));
        assert!(kept.is_some() && !held.is_lost(), "it is renewed");
        assert!(!waiter.is_finished());
        let start = Instant::now();
        held.release().unwrap();
        let (granted, woken) = waiter.join().unwrap();
        assert!(woken - start < TOLD, "{:?}", woken - start);
        granted
    });
    assert!(granted.fence() > fence);
    granted.refresh().unwrap();
    granted.release().unwrap();
    std::thread::scope(|scope| {
        let latch = gate.latch("all", 1);
        let waiter = scope.spawn({
            let latch = latch.clone();
            move || (latch.wait().unwrap(), Instant::now())
        });
        let mut con = server.connection();
        let waiters = format!("{}:latch.waiters:{{all}}", server.prefix);
        eventually("it waits", || {
            let count: i64 = redis::cmd("ZCARD").arg(&waiters).query(&mut con).unwrap();
            (count == 1).then_some(())
        });
        let start = Instant::now();
        latch.count_down().unwrap();
        assert!(waiter.join().unwrap().1 - start < TOLD);
    });
}

#[test]
fn everything_works_with_a_private_ca_and_a_client_certificate() {
    let authority = Authority::new("one");
    for version in ["TLSv1.3", "TLSv1.2"] {
        let arguments = ["--tls-protocols", version];
        let server = own_tls!(authority.server(&authority.identity(), &arguments));
        let gate = both(&server.url, &authority, &authority.identity()).prefix(&server.prefix).open().unwrap();
        use_it(&server, &gate);
    }
}

#[test]
fn a_client_of_the_user_s_own_keeps_its_certificates() {
    let authority = Authority::new("one");
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let client = authority.client(&server.url, &authority.identity());
    let gate = Gate::builder_with(client).prefix(&server.prefix).open().unwrap();
    use_it(&server, &gate);
}

/// One waits for what another gives back, and is told.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn hand_over(gate: &Gate, name: &str) {
    let semaphore = gate.semaphore(name, 1);
    let held = semaphore.acquire_timeout(support::SOON).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (semaphore.acquire().unwrap(), Instant::now()));
        eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        let start = Instant::now();
        held.release().unwrap();
        let (granted, told) = waiter.join().unwrap();
        assert!(told - start < TOLD, "{:?}", told - start);
        granted.release().unwrap();
    });
}

#[cfg(feature = "cluster")]
#[test]
fn on_each_node_of_a_cluster_also_those_that_were_only_heard_of() {
    let authority = Authority::new("one");
    let start: &Start = &|arguments, folder| authority.member(arguments, folder);
    let cluster = own_tls!(Cluster::of(start));
    let url = format!("rediss+cluster://{}", cluster.addresses()[0]);
    let gate = both(&url, &authority, &authority.identity()).prefix(&cluster.prefix).open().unwrap();
    // One node sends to another, with `ASK` and then with `MOVED`.
    let masters = cluster.masters();
    let name = cluster.name_on(masters[0]);
    let slot = cluster.slot(&format!("{{{name}}}"));
    let moving = cluster.begin_move(slot, masters[1]);
    let recent = Recent::new(&gate, &name); // one key, which may be there while others are not
    recent.add("bob").unwrap();
    moving.end(&cluster);
    recent.add("ann").unwrap();
    hand_over(&gate, &name);
    for master in masters {
        hand_over(&gate, &cluster.name_on(master));
    }
    // What is wrong is told here, too.
    let own = authority.identity();
    let other = Authority::new("other");
    assert_told(both(&url, &other, &own).open(), &["CA that is not trusted", "`root_certificates`"]);
    let none = Gate::builder(&url).root_certificates(&authority.pem);
    assert_told(none.open(), &["wants a certificate"]);
    assert_told(Gate::open(&url.replace("rediss", "redis")), &["speaks TLS at this port"]);
}

#[cfg(feature = "cluster")]
#[test]
fn a_cluster_is_reached_by_tls_or_without_and_not_half() {
    let authority = Authority::new("one");
    let nodes = ["redis://127.0.0.1:1", "rediss://127.0.0.1:2"];
    let opened = GateBuilder::cluster(&nodes).root_certificates(&authority.pem).open();
    let Err(CallError::Invalid(invalid)) = opened else { panic!() };
    assert!(invalid.to_string().contains("all reached by TLS"));
}

#[cfg(feature = "sentinel")]
#[test]
fn with_the_sentinels_and_each_master_that_they_name() {
    let authority = Authority::new("one");
    let start: &Start = &|arguments, folder| authority.member(arguments, folder);
    let mut group = own_tls!(Sentinels::of(start));
    let url = |scheme: &str| {
        let sentinels = group.sentinels.addresses().join(",");
        format!("{scheme}+sentinel://{sentinels}/{MASTER}")
    };
    let (url, plain) = (url("rediss"), url("redis"));
    let gate = both(&url, &authority, &authority.identity()).prefix(&group.prefix).open().unwrap();
    hand_over(&gate, "all");
    assert_told(Gate::open(&url), &["CA that is not trusted"]);
    assert_told(Gate::open(&plain), &["speaks TLS at this port"]);
    let master = group.master();
    group.settle();
    group.kill(master);
    group.promoted(master);
    let lock = eventually("it is there", || gate.mutex("m").try_lock().ok());
    lock.unlock().unwrap();
    hand_over(&gate, "all");
}

/// A sentinel without TLS that calls the server at this address the master.
#[cfg(feature = "sentinel")]
fn plain_sentinel(master: &str) -> String {
    let (host, port) = master.split_once(':').unwrap();
    let reply = format!("*2\r\n${}\r\n{host}\r\n${}\r\n{port}\r\n", host.len(), port.len());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let reply = reply.clone();
            std::thread::spawn(move || {
                while let Ok(1..) = stream.read(&mut [0; 1_000]) {
                    let _ = stream.write_all(reply.as_bytes());
                }
            });
        }
    });
    url
}

#[cfg(feature = "sentinel")]
#[test]
fn with_a_master_whose_sentinels_speak_no_tls() {
    let authority = Authority::new("one");
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let sentinel = plain_sentinel(server.address());
    let own = authority.identity();
    let like = |url| {
        GateBuilder::sentinel(&[&sentinel], MASTER, url)
            .root_certificates(&authority.pem)
            .client_certificate(&own.chain, &own.key)
            .prefix(&server.prefix)
    };
    use_it(&server, &like("rediss://any").open().unwrap());
    match like("redis://any").open() {
        Err(CallError::Invalid(invalid)) => assert_eq!(invalid.what(), "url", "{invalid}"),
        other => panic!("nothing uses the certificates: {other:?}"),
    }
    let plain = GateBuilder::sentinel(&[&sentinel], MASTER, "redis://any");
    assert_told(plain.open(), &["speaks TLS at this port"]);
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let authority = Authority::new("one");
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let gate = both(&server.url, &authority, &authority.identity()).prefix(&server.prefix).open().unwrap();
    let semaphore = gate.semaphore("broken", 1);
    let held = semaphore.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (semaphore.acquire().unwrap(), Instant::now()));
        eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        let mut con = server.connection();
        support::kill_connections(&mut con, "normal");
        assert_eq!(support::kill_connections(&mut con, "pubsub"), 1);
        eventually("it listens again", || {
            let pattern = format!("{}:inbox:*", server.prefix);
            let mut channels = redis::cmd("PUBSUB");
            let channels: Vec<String> = channels.arg("CHANNELS").arg(pattern).query(&mut con).ok()?;
            (channels.len() == 1).then_some(())
        });
        let start = Instant::now();
        held.release().unwrap();
        assert!(waiter.join().unwrap().1 - start < TOLD);
    });
}

#[test]
fn a_server_that_is_not_trusted() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let own = authority.identity();
    let words = ["CA that is not trusted", "`root_certificates`"];
    assert_told(both(&server.url, &other, &own).open(), &words);
    // It was made anew, with the same name.
    let same = Authority::new("one");
    assert_told(both(&server.url, &same, &own).open(), &words);
    // The system does not know the private CA either.
    assert_told(Gate::open(&server.url), &words);
}

#[test]
fn a_server_certificate_of_another_time() {
    let authority = Authority::new("one");
    for (years, words) in [((2001, 2002), ["has expired", "renew it"]), ((3001, 3002), ["not valid yet", "clock"])] {
        let identity = authority.sign("127.0.0.1", years);
        let server = own_tls!(authority.server(&identity, &[]));
        let gate = both(&server.url, &authority, &authority.identity());
        assert_told(gate.open(), &words);
    }
}

#[test]
fn a_server_certificate_of_another_host() {
    let authority = Authority::new("one");
    let identity = authority.sign("redis.example", (2020, 4000));
    let server = own_tls!(authority.server(&identity, &[]));
    let gate = both(&server.url, &authority, &authority.identity());
    assert_told(gate.open(), &["another host", "redis.example", "127.0.0.1"]);
}

#[test]
fn a_client_certificate_that_is_missing_or_refused() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let expired = authority.sign("client", (2001, 2002));
    for version in ["TLSv1.3", "TLSv1.2"] {
        let arguments = ["--tls-protocols", version];
        let server = own_tls!(authority.server(&authority.identity(), &arguments));
        let none = Gate::builder(&server.url).root_certificates(&authority.pem);
        assert_told(none.open(), &["wants a certificate", "`client_certificate`"]);
        let strange = both(&server.url, &authority, &other.identity());
        assert_told(strange.open(), &["refuses this client's certificate", "`client_certificate`"]);
        let expired = both(&server.url, &authority, &expired);
        assert_told(expired.open(), &["this client's certificate has expired"]);
    }
}

#[test]
fn certificates_that_cannot_be() {
    let authority = Authority::new("one");
    let (own, other) = (authority.identity(), authority.identity());
    let server = own_tls!(authority.server(&own, &[]));
    let mixed = Gate::builder(&server.url).root_certificates(&authority.pem).client_certificate(&own.chain, &other.key);
    assert_told(mixed.open(), &["do not belong together"]);
    let url = &server.url;
    let plain = url.replace("rediss:", "redis:");
    for (builder, what) in [
        (Gate::builder(url).root_certificates("no PEM"), "root_certificates"),
        (Gate::builder(url).client_certificate("no PEM", &own.key), "client_certificate"),
        (Gate::builder(url).client_certificate(&own.chain, "no PEM"), "certificates"),
        (both(&plain, &authority, &own), "url"),
    ] {
        match builder.open() {
            Err(CallError::Invalid(invalid)) => assert_eq!(invalid.what(), what, "{invalid}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn one_side_speaks_tls_and_the_other_does_not() {
    let authority = Authority::new("one");
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let plain = server.url.replace("rediss://", "redis://");
    for url in [&plain, &plain.replace("//", "//user:secret@")] {
        assert_told(Gate::open(url), &["speaks TLS at this port", "rediss in place of redis"]);
    }
    let server = own!(Server::private_tcp(&["--requirepass", "secret"]));
    let secure = server.url.replace("redis://", "rediss://");
    for url in [&secure, &secure.replace("//", "//:secret@")] {
        let gate = Gate::builder(url).connect_timeout(Duration::from_secs(1));
        assert_told(gate.open(), &["speaks no TLS at this port", "redis in place of rediss"]);
    }
}

#[test]
fn no_cipher_in_common() {
    let authority = Authority::new("one");
    // One of TLS 1.3 that rustls does not have.
    let arguments = ["--tls-ciphersuites", "TLS_AES_128_CCM_SHA256"];
    let arguments = [&["--tls-protocols", "TLSv1.3"], &arguments[..]].concat();
    let server = own_tls!(authority.server(&authority.identity(), &arguments));
    let gate = both(&server.url, &authority, &authority.identity());
    assert_told(gate.open(), &["no cipher in common"]);
}

#[test]
fn something_else_that_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 1_000]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    assert_told(Gate::open(&url), &["does not speak TLS", "redis in place of rediss"]);
}

#[test]
fn a_host_that_no_certificate_could_be_for() {
    assert_told(Gate::open("rediss://a..b/"), &["no name that a certificate could have"]);
}

#[test]
fn certificates_of_the_system_that_cannot_be_read() {
    let output = process("open", &["rediss://127.0.0.1:1/"]).env("SSL_CERT_FILE", "/no/such/file").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    for word in ["no secure connection", "SSL_CERT_FILE", "/no/such/file"] {
        assert!(said.contains(word), "no {word} in: {said}");
    }
}

/// What the process does that has other certificates of the system.
pub fn open(arguments: &[String]) {
    println!("{}", Gate::open(&arguments[0]).unwrap_err());
}

#[test]
fn a_certificate_that_changes_while_a_gate_is_open() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let mut server = own_tls!(authority.server(&authority.identity(), &[]));
    let gate = both(&server.url, &authority, &authority.identity()).open().unwrap();
    let semaphore = gate.semaphore("renewed", 1);
    drop(semaphore.try_acquire().unwrap());
    server.kill();
    authority.put(&other.identity());
    server.start_again();
    let told = eventually("the old connections are found broken", || match semaphore.try_acquire() {
        Err(TryAcquireError::Failed(failure)) => Some(failure),
        _ => None,
    });
    assert_eq!(told.kind(), FailureKind::Tls, "{told}");
    server.kill();
    authority.put(&authority.identity());
    server.start_again();
    drop(semaphore.try_acquire().unwrap());
}

#[test]
fn a_stalled_server_is_told_within_the_timeout() {
    let authority = Authority::new("one");
    let mut server = own_tls!(authority.server(&authority.identity(), &[]));
    let timeout = Duration::from_millis(400);
    let gate = both(&server.url, &authority, &authority.identity())
        .read_timeout(timeout)
        .connect_timeout(timeout)
        .open()
        .unwrap();
    let semaphore = gate.semaphore("stalled", 1);
    drop(semaphore.try_acquire().unwrap());
    server.pause();
    // The first has a connection, the others make one.
    for _ in 0..3 {
        let start = Instant::now();
        let error = semaphore.try_acquire().unwrap_err();
        let (TryAcquireError::Failed(failure) | TryAcquireError::Unknown(failure)) = &error else {
            panic!("{error:?}")
        };
        let kinds = [FailureKind::TimedOut, FailureKind::Unreachable];
        assert!(kinds.contains(&failure.kind()), "{failure}");
        assert!(start.elapsed() < timeout * 2, "{:?}", start.elapsed());
    }
    server.resume();
    let again = eventually("it serves again", || semaphore.try_acquire().ok());
    again.release().unwrap();
}

#[test]
fn a_server_that_accepts_and_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let timeout = Duration::from_millis(800);
    for user in ["", "user:secret@"] {
        let url = format!("rediss://{user}{}/", listener.local_addr().unwrap());
        let start = Instant::now();
        let opened = Gate::builder(&url).connect_timeout(timeout).read_timeout(timeout).open();
        assert_eq!(failure(opened).kind(), FailureKind::Unreachable);
        assert!(start.elapsed() < timeout * 2, "{:?}", start.elapsed());
    }
}
