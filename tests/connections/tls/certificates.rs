//! Promise: errors about the certificate of the server or the client say what is wrong and what to do.

use super::{assert_reported, both};
use crate::own_tls;
use crate::support::{eventually, process};
use crate::tls_server::Authority;

use luagate::Gate;
use luagate::errors::{CallError, FailureKind, TryAcquireError};

#[test]
fn an_untrusted_server_certificate_is_reported_with_what_to_do() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let server = own_tls!(authority.server(&authority.identity(), &[]));
    let own = authority.identity();
    let words = ["CA of the server's certificate is not trusted", "`root_certificates`"];
    assert_reported(both(&server.url, &other, &own).open(), &words);
    // Another CA with the same name, as after it was created again.
    let same = Authority::new("one");
    assert_reported(both(&server.url, &same, &own).open(), &words);
    // The certificates of the system do not include the private CA either.
    assert_reported(Gate::open(&server.url), &words);
}

#[test]
fn an_expired_or_future_server_certificate_is_reported() {
    let authority = Authority::new("one");
    for (years, words) in
        [((2001, 2002), ["has expired", "Renew it"]), ((3001, 3002), ["not valid yet", "clock"])]
    {
        let identity = authority.sign("127.0.0.1", years);
        let server = own_tls!(authority.server(&identity, &[]));
        let gate = both(&server.url, &authority, &authority.identity());
        assert_reported(gate.open(), &words);
    }
}

#[test]
fn a_server_certificate_for_another_host_is_reported() {
    let authority = Authority::new("one");
    let identity = authority.sign("redis.example", (2020, 4000));
    let server = own_tls!(authority.server(&identity, &[]));
    let gate = both(&server.url, &authority, &authority.identity());
    assert_reported(gate.open(), &["another host", "redis.example", "127.0.0.1"]);
}

#[test]
fn a_missing_or_refused_client_certificate_is_reported() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let expired = authority.sign("client", (2001, 2002));
    for version in ["TLSv1.3", "TLSv1.2"] {
        let arguments = ["--tls-protocols", version];
        let server = own_tls!(authority.server(&authority.identity(), &arguments));
        let none = Gate::builder(&server.url).root_certificates(&authority.pem);
        assert_reported(none.open(), &["requires a certificate", "`client_certificate`"]);
        let strange = both(&server.url, &authority, &other.identity());
        assert_reported(strange.open(), &["refuses the client's certificate", "`client_certificate`"]);
        let expired = both(&server.url, &authority, &expired);
        assert_reported(expired.open(), &["the client's certificate has expired"]);
    }
}

#[test]
fn invalid_certificates_are_refused() {
    let authority = Authority::new("one");
    let (own, other) = (authority.identity(), authority.identity());
    let server = own_tls!(authority.server(&own, &[]));
    let mixed = Gate::builder(&server.url)
        .root_certificates(&authority.pem)
        .client_certificate(&own.chain, &other.key);
    assert_reported(mixed.open(), &["do not belong together"]);
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
fn a_host_name_that_no_certificate_can_contain_is_reported() {
    assert_reported(Gate::open("rediss://a..b/"), &["not a valid name for a certificate"]);
}

#[test]
fn unreadable_system_certificates_are_reported_with_their_file() {
    let output =
        process("open", &["rediss://127.0.0.1:1/"]).env("SSL_CERT_FILE", "/no/such/file").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    for word in ["cannot make a TLS connection", "SSL_CERT_FILE", "/no/such/file"] {
        assert!(said.contains(word), "no {word} in: {said}");
    }
}

/// Opens a gate, in a process with other system certificates.
pub fn open(arguments: &[String]) {
    println!("{}", Gate::open(&arguments[0]).unwrap_err());
}

#[test]
fn a_certificate_change_while_a_gate_is_open_is_a_tls_error() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let mut server = own_tls!(authority.server(&authority.identity(), &[]));
    let gate = both(&server.url, &authority, &authority.identity()).open().unwrap();
    let semaphore = gate.semaphore("renewed", 1);
    semaphore.try_acquire().unwrap().release().unwrap();
    server.kill();
    authority.put(&other.identity());
    server.start_again();
    let reported = eventually("the old connections have failed", || match semaphore.try_acquire() {
        Err(TryAcquireError::Failed(failure)) => Some(failure),
        _ => None,
    });
    assert_eq!(reported.kind(), FailureKind::Tls, "{reported}");
    server.kill();
    authority.put(&authority.identity());
    server.start_again();
    // The first call can still report an attempt to connect that began while the server was away.
    let permit = eventually("calls succeed again", || match semaphore.try_acquire() {
        Err(TryAcquireError::Failed(failure)) if failure.kind() == FailureKind::Unreachable => None,
        acquired => Some(acquired.unwrap()),
    });
    permit.release().unwrap();
}
