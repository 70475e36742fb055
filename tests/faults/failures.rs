//! Promise: invalid input and failing servers cause clear, typed errors within the timeout. Contention and
//! outage are different errors. Existing data stays unchanged.

use crate::own;
use crate::support::Server;
use crate::support::raw::Raw;

use luagate::admin;
use luagate::errors::{
    AcquireError, CallError, Failure, FailureKind, Invalid, LimitMismatch, TryAcquireError,
};
use luagate::{Error, Gate, GateBuilder, Lease};
use redis::Commands;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[track_caller]
fn assert_invalid<T: std::fmt::Debug>(result: Result<T, impl Into<Error>>, what: &str) {
    match result.map_err(Into::into) {
        Err(Error::Invalid(invalid)) => assert_eq!(invalid.what(), what, "{invalid}"),
        other => panic!("expected {what} to be invalid, got {other:?}"),
    }
}

#[test]
fn invalid_names_ids_and_labels_are_refused() {
    let server = Server::any();
    let gate = server.gate();
    let long = "x".repeat(201);
    for name in ["", " ", "a b", "a\n", "a\u{7f}", "a{b}", "}", &long] {
        let semaphore = gate.semaphore(name, 1);
        assert_invalid(semaphore.try_acquire(), "name");
        assert_invalid(semaphore.acquire(), "name");
        assert_invalid(semaphore.inspect(), "name");
        assert_invalid(semaphore.resize(2), "name");
        assert_invalid(semaphore.adopt("id"), "name");
        assert_invalid(semaphore.revoke("id"), "name");
        assert_invalid(gate.mutex(name).try_lock(), "name");
    }
    for id in ["", "a b", "a\0", &long] {
        let semaphore = gate.semaphore("ids", 1);
        assert_invalid(semaphore.clone().id(id).try_acquire(), "id");
        assert_invalid(semaphore.clone().id(id).acquire(), "id");
        assert_invalid(semaphore.adopt(id), "id");
        assert_invalid(semaphore.revoke(id), "id");
    }
    for label in ["", "a b", &long] {
        assert_invalid(gate.semaphore("labels", 1).label(label).try_acquire(), "label");
        assert_invalid(Gate::builder(&server.url).label(label).open(), "label");
    }
    assert!(server.all_keys().is_empty());
}

#[test]
fn invalid_numbers_are_refused() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("numbers", 3);
    assert_invalid(semaphore.try_acquire_many(0), "permits");
    assert_invalid(semaphore.acquire_many(0), "permits");
    assert_invalid(gate.semaphore("numbers", 0).try_acquire(), "limit");
    assert_invalid(gate.semaphore("numbers", u32::MAX).acquire(), "limit");
    assert_invalid(semaphore.resize(0), "limit");
    assert_invalid(semaphore.resize(u32::MAX), "limit");
    assert_invalid(admin::inspect_page(&semaphore, 0, 1_001), "count");
    let century = Duration::from_secs(36_525 * 86_400);
    for lease in
        [Duration::ZERO, Duration::from_micros(999), century + Duration::from_millis(1), Duration::MAX]
    {
        assert_invalid(semaphore.clone().lease(Lease::fixed(lease)).try_acquire(), "lease");
        assert_invalid(semaphore.clone().lease(Lease::fixed(lease)).adopt("id"), "lease");
    }
    assert!(server.all_keys().is_empty());
    drop(semaphore.clone().lease(Lease::fixed(century)).try_acquire().unwrap());
    drop(semaphore.acquire_timeout(Duration::MAX).unwrap());
    let mut two = semaphore.try_acquire_many(2).unwrap();
    assert_invalid(two.release_some(0), "permits");
    assert_invalid(two.release_some(2), "permits");
    assert_eq!(semaphore.available_permits().unwrap(), 1);
}

#[test]
fn invalid_settings_are_refused() {
    let server = Server::any();
    let with = |set: fn(GateBuilder) -> GateBuilder| set(Gate::builder(&server.url)).open();
    assert_invalid(with(|b| b.prefix("a b")), "prefix");
    assert_invalid(with(|b| b.connect_timeout(Duration::ZERO)), "connect_timeout");
    assert_invalid(with(|b| b.read_timeout(Duration::ZERO)), "read_timeout");
    for url in ["", "localhost", "http://localhost/", "redis://"] {
        assert!(Gate::open(url).is_err(), "{url}");
    }
    assert_invalid(Gate::open("http://localhost/"), "url");
}

/// Opens a gate with short timeouts. Opening must fail soon; returns the failure.
#[track_caller]
fn open_fails(url: &str) -> Failure {
    let timeout = Duration::from_secs(2);
    let start = Instant::now();
    let opened = Gate::builder(url).connect_timeout(timeout).read_timeout(timeout).open();
    assert!(start.elapsed() < 2 * timeout, "{:?}", start.elapsed());
    match opened {
        Err(CallError::Failed(failure) | CallError::Unknown(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_without_a_server_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(open_fails(&format!("redis://{address}/")).kind(), FailureKind::Unreachable);
    assert_eq!(open_fails("unix:///there/is/no/such/socket").kind(), FailureKind::Unreachable);
    assert_eq!(open_fails("redis://no-such-host.invalid/").kind(), FailureKind::Unreachable);
}

#[test]
fn a_server_that_accepts_and_never_answers_is_an_error_within_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let failure = open_fails(&format!("redis://{address}/"));
    assert_eq!(failure.kind(), FailureKind::TimedOut);
    // With a password and a database the client waits for more replies. Their times do not add up.
    let failure = open_fails(&format!("redis://user:secret@{address}/3"));
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(!format!("{failure:?} {failure}").contains("secret"));
}

#[test]
fn a_server_that_is_not_redis_is_reported_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let failure = open_fails(&format!("redis://{address}/"));
    assert_eq!(failure.kind(), FailureKind::NotRedis, "{failure}");
}

#[test]
fn a_wrong_or_missing_password_is_an_authentication_error() {
    let server = own!(Server::private_tcp(&["--requirepass", "secret"]));
    let with = |user: &str| server.url.replace("redis://", &format!("redis://{user}"));
    let failure = open_fails(&with(":wrong-one@"));
    assert_eq!(failure.kind(), FailureKind::Authentication);
    assert!(!format!("{failure:?} {failure}").contains("wrong-one"));
    assert_eq!(open_fails(&server.url).kind(), FailureKind::Authentication);
    let gate = Gate::open(&with(":secret@")).unwrap();
    drop(gate.semaphore("open", 1).acquire().unwrap());
    assert!(!format!("{:?} {:?}", gate, Gate::builder(&with(":secret@"))).contains("secret"));
}

#[test]
fn a_missing_permission_is_a_permission_error() {
    let server = own!(Server::private_tcp(&[
        "--user", "reader", "on", ">pw", "~*", "&*", "-@all", "+ping", "+evalsha", "+script",
    ]));
    let gate = Gate::open(&server.url.replace("redis://", "redis://reader:pw@")).unwrap();
    let Err(TryAcquireError::Failed(failure)) = gate.semaphore("acl", 1).try_acquire() else { panic!() };
    assert_eq!(failure.kind(), FailureKind::Permission, "{failure}");
}

#[test]
fn a_read_only_replica_is_reported_as_such() {
    let master = own!(Server::private_tcp(&[]));
    let (_, port) = master.address().split_once(':').unwrap();
    let replica = own!(Server::private(&["--replicaof", "127.0.0.1", port]));
    let Err(TryAcquireError::Failed(failure)) = replica.gate().semaphore("replica", 1).try_acquire() else {
        panic!()
    };
    assert_eq!(failure.kind(), FailureKind::ReadOnly, "{failure}");
    let Err(AcquireError::Failed(failure)) = replica.gate().semaphore("replica", 1).acquire() else {
        panic!()
    };
    assert_eq!(failure.kind(), FailureKind::ReadOnly, "{failure}");
}

#[test]
fn a_key_of_another_type_is_an_error_and_stays_unchanged() {
    let server = Server::any();
    let raw = Raw::named(&server, "typed", 1);
    let key = raw.key_names()[0].clone();
    let _: () = server.connection().set(&key, "precious").unwrap();
    let Err(TryAcquireError::Failed(failure)) = server.gate().semaphore("typed", 1).try_acquire() else {
        panic!()
    };
    assert_eq!(failure.kind(), FailureKind::WrongType);
    let value: String = server.connection().get(&key).unwrap();
    assert_eq!(value, "precious");
}

#[test]
fn a_state_of_another_version_is_an_error_that_says_what_to_do() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("newer", 1).id("own");
    let permit = semaphore.try_acquire().unwrap();
    let meta = permit.keys().list()[0].to_owned();
    let newer = vec![8_u8; 60];
    let _: () = server.connection().hset(&meta, "the state", &newer).unwrap();
    let failures = [
        semaphore.try_acquire().map(drop).map_err(Error::from),
        semaphore.acquire().map(drop).map_err(Error::from),
        semaphore.inspect().map(drop).map_err(Error::from),
        permit.refresh().map_err(Error::from),
        permit.release().map(drop).map_err(Error::from),
    ];
    for failure in failures {
        let Err(Error::Failed(failure)) = failure else { panic!("{failure:?}") };
        assert_eq!(failure.kind(), FailureKind::WrongVersion, "{failure}");
        let text = failure.to_string();
        let advice = "Use one version in all programs";
        assert!(text.contains(advice) && text.contains("has version 2"), "{text}");
    }
    let stored: Vec<u8> = server.connection().hget(&meta, "the state").unwrap();
    assert_eq!(stored, newer);
}

#[test]
fn a_stalled_server_is_reported_within_the_timeout_and_not_as_contention() {
    let mut server = own!(Server::private(&[]));
    let short = Duration::from_secs(1);
    let gate = Gate::builder(&server.url).prefix(&server.prefix).read_timeout(short).connect_timeout(short);
    let gate = gate.open().unwrap();
    let semaphore = gate.semaphore("stalled", 1);
    drop(semaphore.try_acquire().unwrap());
    server.pause();
    for _ in 0..3 {
        let start = Instant::now();
        match semaphore.try_acquire() {
            // A later call is not sent before the release of an earlier one.
            Err(TryAcquireError::Unknown(failure) | TryAcquireError::Failed(failure)) => {
                assert_eq!(failure.kind(), FailureKind::TimedOut);
            }
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < 3 * short, "{:?}", start.elapsed());
    }
    let start = Instant::now();
    let error = semaphore.acquire_timeout(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, AcquireError::Unknown(_) | AcquireError::Failed(_)), "{error}");
    assert!(start.elapsed() < 3 * short, "{:?}", start.elapsed());
    server.resume();
}

#[test]
fn a_strict_semaphore_acquires_nothing_under_another_limit() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.semaphore("strict", 3).acquire().unwrap();
    let strict = gate.semaphore("strict", 5).strict();
    let expected = |mismatch: LimitMismatch| (mismatch.declared, mismatch.in_force) == (5, 3);
    let Err(TryAcquireError::LimitMismatch(mismatch)) = strict.try_acquire() else { panic!() };
    assert!(expected(mismatch));
    let Err(AcquireError::LimitMismatch(mismatch)) = strict.acquire() else { panic!() };
    assert!(expected(mismatch));
    let rest = gate.semaphore("strict", 3).try_acquire_available().unwrap();
    let Err(AcquireError::LimitMismatch(mismatch)) = strict.acquire() else { panic!() };
    assert!(expected(mismatch));
    let state = strict.inspect().unwrap();
    assert_eq!((state.in_use, state.waiter_count), (3, 0));
    assert_eq!((held.limit(), rest.permits()), (Some(3), 2));
    drop(gate.semaphore("strict-and-right", 5).strict().acquire().unwrap());
}

#[test]
fn errors_say_what_to_do() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("texts", 1).lease(Lease::fixed(Duration::from_secs(20)));
    let permit = semaphore.acquire().unwrap();
    let denied = semaphore.try_acquire().unwrap_err();
    let Error::Denied(details) = Error::from(denied.clone()) else { panic!() };
    assert_eq!((details.in_use, details.limit, details.waiting), (1, 1, 0));
    let after = details.next_expiry.unwrap();
    assert!(after > Duration::from_secs(15) && after <= Duration::from_secs(20), "{after:?}");
    assert!(denied.to_string().starts_with("denied: texts: 1 of 1 permits are in use"), "{denied}");
    let timed_out = semaphore.acquire_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(timed_out.to_string().starts_with("timed out in line: texts: 1 of 1"), "{timed_out}");
    let invalid: Invalid = match semaphore.try_acquire_many(0) {
        Err(TryAcquireError::Invalid(invalid)) => invalid,
        other => panic!("{other:?}"),
    };
    assert_eq!(invalid.to_string(), "permits: got 0. Accepted: 1 to the limit");
    permit.release().unwrap();
}

/// A server that answers PING correctly and any other command with `reply`.
fn answers_everything_with(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut call = [0; 65_536];
                while let Ok(count @ 1..) = stream.read(&mut call) {
                    let ping = call[..count].windows(4).any(|word| word == b"PING");
                    let answer = if ping { b"+PONG\r\n" } else { reply };
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[test]
fn no_reply_causes_a_panic_or_a_permit_that_was_not_granted() {
    let replies: [&[u8]; 24] = [
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*1\r\n*0\r\n",
        b"*1\r\n$7\r\ngranted\r\n",
        b"*1\r\n+granted\r\n",
        b"*1\r\n$3\r\n\xff\xfe\xfd\r\n",
        b"*7\r\n$7\r\ngranted\r\n:-1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        b"*7\r\n$7\r\ngranted\r\n:99999999999\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        b"*7\r\n$7\r\ngranted\r\n$1\r\n1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        b"*7\r\n$6\r\nqueued\r\n:9223372036854775807\r\n:9223372036854775807\r\n:9223372036854775807\r\n:1\r\n:1\r\n:0\r\n",
        b"*7\r\n$6\r\nqueued\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
        b"*7\r\n$7\r\ngranted\r\n:1\r\n:7\r\n:9223372036854775807\r\n:0\r\n:1\r\n:1\r\n",
        b"*7\r\n$7\r\ngranted\r\n:1\r\n:7\r\n:-1\r\n:1\r\n:1\r\n:1\r\n",
        b"*6\r\n$6\r\ndenied\r\n:9223372036854775807\r\n:1\r\n:1\r\n:9223372036854775807\r\n:0\r\n",
        b"*5\r\n$9\r\nrefreshed\r\n:1\r\n:1\r\n:-2\r\n:0\r\n",
        b"*9\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        b"*9\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n*1\r\n*1\r\n:1\r\n*0\r\n",
        b"-LUAGATE\r\n",
        b"-\r\n",
        b"-NOSCRIPT whatever is sent\r\n",
        b"$999999999\r\nshort\r\n",
    ];
    for reply in replies {
        let url = answers_everything_with(reply);
        let timeout = Duration::from_millis(400);
        let shown = String::from_utf8_lossy(reply);
        let opened = Gate::builder(&url).read_timeout(timeout).outage_timeout(timeout).open();
        let gate = opened.expect(&shown);
        let semaphore = gate.semaphore("any", 3).lease(Lease::fixed(Duration::from_secs(1)));
        assert!(semaphore.try_acquire().is_err(), "{shown}");
        assert!(semaphore.acquire_timeout(Duration::from_millis(20)).is_err(), "{shown}");
        assert!(semaphore.adopt("id").is_err(), "{shown}");
        let _ = semaphore.inspect();
        assert!(semaphore.resize(4).is_err(), "{shown}");
        assert!(semaphore.revoke("id").is_err(), "{shown}");
    }
    // Extreme numbers are kept; they do not overflow.
    let far = b"*7\r\n$7\r\ngranted\r\n:1\r\n:9223372036854775807\r\n:9223372036854775807\r\n:9223372036854774807\r\n:1\r\n:1\r\n";
    let gate = Gate::open(&answers_everything_with(far)).unwrap();
    let permit = gate.semaphore("any", 1).lease(Lease::fixed(Duration::from_secs(1))).try_acquire().unwrap();
    assert!(!permit.is_lost());
    std::mem::forget(permit); // its release would get the same reply
}
