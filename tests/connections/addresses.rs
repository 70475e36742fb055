//! What a URL means, what the error of a wrong one must contain, and what it must not show.

use crate::own;
use crate::support::Server;
use crate::support::stub_sentinel::StubSentinel;

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
    ("redis://host/-1", "the database is not a number"),
    ("redis://host?db=-1", "the database is not a number"),
    ("redis://host?db=", "the database is not a number"),
    ("redis://host?db", "the database is not a number"),
    ("redis://host?db=2&db=2", "the parameter db is given twice"),
    ("redis://host?user=a&username=b", "the parameter user is given twice"),
    ("redis://host?pass=secret&password=secret", "the parameter password is given twice"),
    ("redis://host/1?db=2", "the database of the parameter differs"),
    ("redis://host/0?db=2", "the database of the parameter differs"),
    ("redis://host/1?db=0", "the database of the parameter differs"),
    ("redis://a:secret@host?user=b", "the user of the parameter differs"),
    ("redis://a:secret1@host?password=secret2", "the password of the parameter differs"),
    ("redis://host?password=", "the parameter password has no value"),
    ("redis://host?user=%ff&password=secret", "the parameter user has no value, or one that is not UTF-8"),
    ("redis://host?password=a%ffsecret", "the parameter password has no value, or one that is not UTF-8"),
    ("redis://host?password=secret/@", "the password contains"),
    ("redis://host?password=sec#secret", "the fragment is"),
    ("redis://host/2#insecure", "the fragment is"),
    ("unix:///socket?pass=sec#secret", "the fragment is"),
    ("redis://host?password=a&secret=b", "a parameter after the password is unknown"),
    ("unix:///socket?pass=a&secret&db=1", "a parameter after the password is unknown"),
    ("redis://host?secret", "a parameter is unknown, or has no value"),
    ("redis://host?=secret", "a parameter is unknown, or has no value"),
    ("redis://host?%1b]0;=secret", "a parameter is unknown, or has no value"),
];

/// URLs with a parameter that luagate does not know.
const UNKNOWN: &[(&str, &str)] = &[
    ("redis://host?timeout=5", "timeout"),
    ("redis://host?Db=5", "Db"),
    ("redis://:secret@host/1?database=2", "database"),
    ("redis://host?user=me&passwrd=secret", "passwrd"),
    ("redis://host?db=1&ssl_cert_reqs=none", "ssl_cert_reqs"),
    ("valkey://host?dial-timeout=5s", "dial-timeout"),
    ("unix:///socket?db=1&socket.timeout=5", "socket.timeout"),
    ("redis+unix:///socket?databse=1", "databse"),
    ("redis+cluster://:secret@a,b?timeout=5", "timeout"),
    ("redis+sentinel://:secret@a,b/orders?sentinel_password=secret", "sentinel_password"),
];

#[test]
fn an_unknown_parameter_is_named() {
    for (url, parameter) in UNKNOWN {
        let reported = assert_reported(url, &format!("the parameter {parameter} is unknown"));
        assert!(reported.contains("Accepted: db, user"), "{url}: {reported}");
    }
}

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
    assert_reported("rediss://:secret@host/0?db=1#insecure", "the database of the parameter differs");
    assert_reported("rediss://:secret@host?ssl_cert_reqs=none", "the parameter ssl_cert_reqs is unknown");
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
        ("redis+cluster://:secret@a:1/?password=secret#x", "the fragment is"),
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
        ("redis+sentinel://:secret@a/?db=2", "the name of the master is missing"),
        ("redis+sentinel://a?db=2", "the name of the master is missing"),
    ] {
        let reported = assert_reported(url, part);
        assert!(reported.contains("Accepted: redis+sentinel://"), "{url}: {reported}");
    }
}

#[test]
fn a_cluster_and_contradicting_parts_are_refused_in_every_kind_of_url() {
    assert_reported("redis+cluster://:secret@a,b?db=2", "the database is not 0");
    assert_reported("redis+cluster://:secret@a,b/2", "the database is not 0");
    assert_reported("redis+cluster://:secret@a,b/0?db=2", "the database of the parameter differs");
    assert_reported("redis+cluster://:secret1@a,b?password=secret2", "the password of the parameter differs");
    assert_reported("redis+sentinel://:secret@a,b/orders/1?db=2", "the database of the parameter differs");
    assert_reported("redis+sentinel://me:secret@a,b/orders?user=you", "the user of the parameter differs");
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

/// The names of the keys in a database.
fn keys_in(db: u32, server: &Server) -> Vec<String> {
    let mut con = server.connection();
    redis::cmd("SELECT").arg(db).exec(&mut con).unwrap();
    redis::cmd("KEYS").arg("*").query(&mut con).unwrap()
}

/// The users of the connections that have selected this database.
fn users_in(db: u32, server: &Server) -> Vec<String> {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connection()).unwrap();
    let field = |line: &str, name: &str| {
        let words = line.split(' ').filter_map(|word| word.split_once('='));
        words.into_iter().find(|(field, _)| *field == name).map(|(_, value)| value.to_owned())
    };
    let there = list.lines().filter(|line| field(line, "db") == Some(db.to_string()));
    there.filter_map(|line| field(line, "user")).collect()
}

/// Programs in several languages get the same URL. If one of them used another database, both would hold the
/// same lock.
#[test]
fn database_user_and_password_of_the_parameters_are_those_of_the_connections() {
    let server = own!(Server::private_tcp(&[]));
    let set = |user: &str, password: &str| {
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", user, "on", password, "~*", "&*", "+@all"]);
        command.exec(&mut server.connection()).unwrap();
    };
    set("clerk", ">a+b");
    set("guest", "nopass");
    let (host, socket) = (server.address(), server.socket_url());
    let sentinel = StubSentinel::naming(&server).address;
    for (url, db, user) in [
        (format!("redis://{host}?db=2"), 2, "default"),
        (format!("redis://{host}/3?user=clerk&password=a%2Bb"), 3, "clerk"),
        (format!("redis://clerk@{host}?db=4&password=a%2Bb&protocol=3"), 4, "clerk"),
        (format!("redis://guest@{host}?db=5"), 5, "guest"),
        (format!("{socket}?db=6&username=clerk&pass=a%2Bb"), 6, "clerk"),
        (format!("{}?db=7&user=guest", socket.replace("unix", "redis+unix")), 7, "guest"),
        (format!("redis+sentinel://{sentinel}/orders?db=8&user=clerk&password=a%2Bb"), 8, "clerk"),
        (format!("redis+sentinel://clerk:a%2Bb@{sentinel}/orders/9?db=9"), 9, "clerk"),
    ] {
        let gate = Gate::open(&url).unwrap();
        let lock = gate.mutex("job").lock().unwrap();
        let users = users_in(db, &server); // of one connection, or also of one for messages
        assert!(!users.is_empty() && users.iter().all(|other| other == user), "{url}: {users:?}");
        assert!(!keys_in(db, &server).is_empty(), "{url}: no key in database {db}"); // this connects, as another user
        lock.release().unwrap();
    }
    assert_eq!(keys_in(0, &server), [""; 0], "a key in database 0");
}
