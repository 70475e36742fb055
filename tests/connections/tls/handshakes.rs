//! Promise: if client and server cannot speak TLS with each other, an error with the reason is returned
//! within the timeout.

use super::{assert_reported, both, failure};
use crate::own;
use crate::own_tls;
use crate::support::{Server, eventually};
use crate::tls_server::Authority;

use luagate::errors::{FailureKind, TryAcquireError};
use luagate::{Gate, Permit};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[test]
fn tls_on_one_side_only_is_reported_with_the_scheme_to_use() {
    let authority = Authority::new("one");
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let plain = server.url.replace("rediss://", "redis://");
    for url in [&plain, &plain.replace("//", "//user:secret@")] {
        assert_reported(Gate::open(url), &["uses TLS at this port", "rediss instead of redis"]);
    }
    let server = own!(Server::private_tcp(&["--requirepass", "secret"]));
    let secure = server.url.replace("redis://", "rediss://");
    for url in [&secure, &secure.replace("//", "//:secret@")] {
        let gate = Gate::builder(url).connect_timeout(Duration::from_secs(1));
        assert_reported(gate.open(), &["does not use TLS at this port", "redis instead of rediss"]);
    }
}

#[test]
fn a_missing_common_cipher_is_reported() {
    let authority = Authority::new("one");
    // A cipher of TLS 1.3 that rustls does not have.
    let arguments = ["--tls-ciphersuites", "TLS_AES_128_CCM_SHA256"];
    let arguments = [&["--tls-protocols", "TLSv1.3"], &arguments[..]].concat();
    let server = own_tls!(authority.server(&authority.identity(), &arguments));
    let gate = both(&server.url, &authority, &authority.identity());
    assert_reported(gate.open(), &["no cipher in common"]);
}

#[test]
fn a_server_that_does_not_speak_tls_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 1_000]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    assert_reported(Gate::open(&url), &["does not use TLS", "redis instead of rediss"]);
}

#[test]
fn a_stalled_server_is_an_error_within_twice_the_timeout() {
    calls_of_a_stalled_server_end_in_time(|permit| {
        permit.release().unwrap();
        None
    });
}

/// The calls first wait for the release, which is not confirmed.
#[test]
fn a_stalled_server_is_an_error_within_twice_the_timeout_though_a_release_must_be_repeated() {
    calls_of_a_stalled_server_end_in_time(Some);
}

/// `release` returns a permit that is dropped when the server has stalled.
fn calls_of_a_stalled_server_end_in_time(release: fn(Permit) -> Option<Permit>) {
    let authority = Authority::new("one");
    let mut server = own_tls!(authority.server(&authority.identity(), &[]));
    let timeout = Duration::from_secs(2); // longer than a pause of a busy machine
    let gate = both(&server.url, &authority, &authority.identity())
        .read_timeout(timeout)
        .connect_timeout(timeout)
        .open()
        .unwrap();
    let semaphore = gate.semaphore("stalled", 1);
    let unreleased = release(semaphore.try_acquire().unwrap());
    server.pause();
    drop(unreleased);
    // The first call has a connection, the others open one.
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
fn a_server_that_accepts_and_never_answers_is_unreachable_within_twice_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let timeout = Duration::from_secs(2);
    for user in ["", "user:secret@"] {
        let url = format!("rediss://{user}{}/", listener.local_addr().unwrap());
        let start = Instant::now();
        let opened = Gate::builder(&url).connect_timeout(timeout).read_timeout(timeout).open();
        assert_eq!(failure(opened).kind(), FailureKind::Unreachable);
        assert!(start.elapsed() < timeout * 2, "{:?}", start.elapsed());
    }
}
