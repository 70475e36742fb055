//! What the error of a wrong URL must contain, and what it must not show.

use luagate::Gate;
use luagate::errors::CallError;
use proptest::prelude::*;

/// The error of a wrong URL. The invalid prefix prevents any connection.
fn error_of(url: &str) -> Option<String> {
    match Gate::builder(url).prefix("").open() {
        Err(CallError::Invalid(invalid)) if invalid.what() == "prefix" => None,
        Err(CallError::Invalid(invalid)) => Some(invalid.to_string()),
        other => panic!("{url}: {other:?}"),
    }
}

/// Wrong URLs, each with a phrase of the error that names the wrong part. Every password is `secret`.
const WRONG: &[(&str, &str)] = &[
    ("", "the scheme is missing"),
    ("localhost", "the scheme is missing"),
    ("localhost:6379", "the scheme is missing"),
    ("user:secret@host:6379", "the scheme is missing"),
    ("redis:/host", "the scheme is missing"),
    ("http://:secret@host", "the scheme is unknown"),
    ("secret://host", "the scheme is unknown"),
    ("redis+tls://host", "the scheme is unknown"),
    ("://host", "the scheme is unknown"),
    ("redis://", "the host is missing"),
    ("redis://:6379", "the host is missing"),
    ("redis://:secret@", "the host is missing"),
    ("redis://:secret@:6379/0", "the host is missing"),
    ("redis://:secret@ho st", "the host, the user or the password contains"),
    ("redis://:secret@ho<st/0", "the host, the user or the password contains"),
    ("redis://[::1", "the host has a bracket"),
    ("redis://[secret]:6379", "the host has a bracket"),
    ("redis://0.0.0.0", "the host is the wildcard"),
    ("redis://[::]:6379/3", "the host is the wildcard"),
    ("redis://host:port", "the port is"),
    ("redis://:secret@host:port", "the port is"),
    ("redis://host:65536", "the port is"),
    ("redis://host:-1/0", "the port is"),
    ("redis://host:63 79", "the port is"),
    ("redis://a:7001,b:7002", "the port is"),
    ("redis://:secret@[::1]:x", "the port is"),
    ("redis://[::1]6379", "the port is"),
    ("redis://:secret@host/x", "the database is"),
    ("redis://host:6379/0/1", "the database is"),
    ("redis://host/99999999999999999999", "the database is"),
    ("valkey://:secret@host/db", "the database is"),
    ("redis://:a/secret@host", "the password contains"),
    ("redis://:secret/a@host", "the password contains"),
    ("redis://user:6379/secret@host", "the password contains"),
    ("redis://:sec#secret@host", "the password contains"),
    ("redis://:sec?secret@host:6379/0", "the password contains"),
    ("redis://user:12?secret@host", "the password contains"),
    ("redis://:secret\t@host", "a control character"),
    ("redis://:secret%ff@host", "the host, the user or the password contains"),
    ("redis://%ff:secret@host", "the host, the user or the password contains"),
    ("redis://:secret@host/0?protocol=secret", "the protocol is"),
    ("unix://", "the path of the socket"),
    ("unix://socket", "the path of the socket"),
    ("redis+unix://relative/socket?pass=secret", "the path of the socket"),
    ("unix:///socket?pass=secret&db=x", "the database is"),
    ("unix:///socket?protocol=9&pass=secret", "the protocol is"),
];

#[test]
fn the_error_names_the_wrong_part_of_a_url_without_the_password() {
    for (url, part) in WRONG {
        assert_reported(url, part);
    }
}

#[test]
#[cfg(feature = "tls")]
fn the_error_names_the_wrong_part_of_a_tls_url() {
    assert_reported("rediss://:secret@host:port", "the port is");
    assert_reported("rediss://:secret@host/0#secure", "the fragment is");
    assert_reported("valkeys://:secret@/0", "the host is missing");
}

#[test]
fn the_error_names_the_wrong_part_and_address_of_a_cluster_url() {
    for (url, part) in [
        ("redis+cluster://", "the host is missing"),
        ("redis+cluster://:secret@", "the host is missing"),
        ("redis+cluster://:secret@a:1,,c:3", "address 2 of 3: the host is missing"),
        ("redis+cluster://:secret@a:1,b:x", "address 2 of 2: the port is"),
        ("redis+cluster://:secret@a:1,b:2/x", "the database is"),
        ("redis+cluster://:a/secret@a:1,b:2", "the password contains"),
        ("redis+cluster://user:1/secret@a:1", "the password contains"),
        ("redis+cluster://:secret#@a:1", "the password contains"),
    ] {
        let reported = assert_reported(url, part);
        assert!(reported.contains("Accepted: redis+cluster://"), "{url}: {reported}");
    }
}

#[test]
fn the_error_names_the_wrong_part_and_address_of_a_sentinel_url() {
    for (url, part) in [
        ("redis+sentinel://", "the name of the master is missing"),
        ("redis+sentinel://:secret@host", "the name of the master is missing"),
        ("redis+sentinel://:secret@a:1,b:2/", "the name of the master is missing"),
        ("redis+sentinel://a//3", "the name of the master is missing"),
        ("redis+sentinel://:secret@/orders", "the host is missing"),
        ("redis+sentinel://:secret@a:1,b:x/orders", "address 2 of 2: the port is"),
        ("redis+sentinel://:secret@a,,c/orders", "address 2 of 3: the host is missing"),
        ("redis+sentinel://:secret@a/orders/x", "the database is"),
        ("redis+sentinel://:a/secret@a/orders", "the password contains"),
        ("redis+sentinel://:a@b/secret@a/orders", "the password contains"),
        ("redis+sentinel://:secret%ff@a/orders", "the host, the user or the password contains"),
    ] {
        let reported = assert_reported(url, part);
        assert!(reported.contains("Accepted: redis+sentinel://"), "{url}: {reported}");
    }
}

#[track_caller]
fn assert_reported(url: &str, part: &str) -> String {
    let reported = error_of(url).expect(url);
    assert!(reported.starts_with("url: "), "{url}: {reported}");
    assert!(reported.contains(part), "{url}: {reported}");
    assert!(reported.contains("Accepted: "), "{url}: {reported}");
    assert!(!reported.contains("secret"), "{url}: {reported}");
    reported
}

/// No part of the URL appears in the error, except the words of the error itself.
#[test]
fn the_error_of_a_wrong_url_quotes_no_part_of_it() {
    let url = "(redis|rediss|unix|redis\\+cluster|redis\\+sentinel|http)?(://)?[:/@,#?\\[\\]]{0,3}(SECRET)?[:/@,#?%a-f0-9 ]{0,12}(SECRET)[:/@,#?%a-f0-9 ]{0,12}";
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) };
    proptest!(config, |(url in url)| {
        if let Some(reported) = error_of(&url) {
            prop_assert!(!reported.contains("SECRET"), "{}: {}", url, reported);
        }
    });
}
