//! Promise: no Debug output, error or printed output contains a password, whatever fails.

use crate::own;
#[cfg(feature = "tls")]
use crate::own_tls;
use crate::support::sentinel::{MASTER, Sentinels};
use crate::support::{Server, process};
#[cfg(feature = "tls")]
use crate::tls_server::Authority;

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::CallError;
use luagate::{Error, Gate, GateBuilder};
use redis::Client;
#[cfg(feature = "tls")]
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use std::fmt::Debug;
use std::time::Duration;

/// The end of every secret in these tests. No text contains it, or the characters before it, by chance.
const SECRET: &str = "hunter2";

#[track_caller]
fn assert_silent(text: &str) {
    assert!(!text.contains(SECRET), "{text}");
}

/// Checks both Debug forms of a value.
#[track_caller]
fn assert_hidden(value: &impl Debug) {
    assert_silent(&format!("{value:?} {value:#?}"));
}

/// Checks all text of an error, down to its first cause.
#[track_caller]
fn assert_kept(error: impl Into<Error>) -> Error {
    let error = error.into();
    let mut next: Option<&dyn std::error::Error> = Some(&error);
    while let Some(cause) = next {
        assert_silent(&format!("{cause} {cause:?} {cause:#?}"));
        next = cause.source();
    }
    error
}

fn brief(builder: GateBuilder) -> GateBuilder {
    let timeout = Duration::from_millis(300);
    builder.connect_timeout(timeout).read_timeout(timeout)
}

/// Asserts that opening fails and that neither the settings nor the error show the secret.
#[track_caller]
fn fails(builder: GateBuilder) -> Error {
    assert_hidden(&builder);
    assert_kept(brief(builder).open().unwrap_err())
}

/// Checks every type that a gate returns.
fn look_at_all_of(gate: &Gate) {
    assert_hidden(gate);
    let semaphore = gate.semaphore("kept", 2);
    assert_hidden(&semaphore);
    let permit = semaphore.acquire().unwrap();
    assert_hidden(&permit);
    assert_hidden(&semaphore.inspect().unwrap());
    assert_kept(semaphore.try_acquire_many(2).unwrap_err());
    assert_kept(semaphore.acquire_many_timeout(2, Duration::from_millis(20)).unwrap_err());
    permit.release().unwrap();
    assert_hidden(&gate.mutex("kept"));
    assert_hidden(&gate.mutex("kept").lock().unwrap());
    let mutexes = gate.mutexes(["{kept}:a", "{kept}:b"]);
    assert_hidden(&mutexes);
    assert_hidden(&mutexes.try_acquire().unwrap());
    let rwlock = gate.rwlock("kept");
    assert_hidden(&rwlock);
    assert_hidden(&rwlock.read().unwrap());
    assert_hidden(&rwlock.write().unwrap());
    assert_hidden(&gate.latch("kept", 1));
    assert_hidden(&Recent::new(gate, "kept"));
    assert_hidden(&Prefix::new(gate, "kept"));
}

#[test]
fn secrets_are_hidden_in_errors_about_a_wrong_address() {
    for url in [
        "redis://user:hunter2@bad host",
        "redis://user:hunter2@",
        "redis://user:hunter2@host:port/",
        "redis://user:hunter2@host:123456/",
        "redis://user:hunter2@host/database",
        "redis://user:hunter2@[::1/",
        "redis://user:hunter2@0.0.0.0/",
        "redis://user:hunter2@host/?protocol=9",
        "redis://user:hunter2%ff@host/",
        "redis://hunter2%ff:hunter2@host/",
        // Not escaped correctly.
        "redis://user:a/hunter2@host/",
        "redis://user:1/hunter2@host/",
        "redis://user:1?protocol=hunter2@host/",
        "redis://user:1?hunter2@host",
        "redis://user:hunter2@ho\nst/",
        "rediss://user:1#hunter2@host/",
        "http://user:hunter2@host/",
        "user:hunter2@host",
        "unix://user:hunter2@host/socket",
        "unix:///no/such/socket?user=user&pass=hunter2&db=database",
        // With several hosts; also without the features.
        "redis+cluster://user:hunter2@bad host,other",
        "redis+cluster://user:hunter2@host:1,other:port",
        "redis+cluster://user:hunter2@host:1/7",
        "redis+cluster://user:a/hunter2@host",
        "redis+cluster://user:1/hunter2@host",
        "redis+sentinel://user:hunter2@bad host/master",
        "redis+sentinel://user:hunter2@host:port/master",
        "redis+sentinel://user:hunter2@host/master/database",
        "redis+sentinel://user:hunter2@host",
        "redis+sentinel://user:a/hunter2@host/master",
        "redis+sentinel://user:1/hunter2@host/master",
        "redis+sentinel://user:1/hunter2@host/1",
        "redis+sentinel://user:1#hunter2@host/master",
        "redis+sentinel://user:1?hunter2@host/master",
        "rediss+sentinel://user:1/hunter2@host/master",
    ] {
        let error = fails(Gate::builder(url));
        assert!(matches!(&error, Error::Invalid(i) if ["url", "sentinels"].contains(&i.what())), "{error}");
        assert_kept(Gate::open(url).unwrap_err());
    }
}

#[test]
fn secrets_are_hidden_if_the_server_is_unreachable() {
    for url in [
        "redis://user:hunter2@no-such-host.invalid/",
        "redis://user:hunter2@127.0.0.1:1/",
        "unix:///no/such/socket?user=user&pass=hunter2",
        #[cfg(feature = "tls")]
        "rediss://user:hunter2@no-such-host.invalid/",
        #[cfg(feature = "tls")]
        "rediss://user:hunter2@127.0.0.1:1/",
        "redis+cluster://user:hunter2@127.0.0.1:1,no-such-host.invalid:1",
        "redis+sentinel://user:hunter2@127.0.0.1:1,no-such-host.invalid/master",
    ] {
        let error = fails(Gate::builder(url));
        assert!(matches!(error, Error::Failed(_)), "{error}");
    }
}

#[test]
fn secrets_are_hidden_if_the_server_refuses_password_or_user() {
    let server = own!(Server::private_tcp(&["--requirepass", "another"]));
    let error = fails(Gate::builder(&server.url.replace("//", "//user:hunter2@")));
    assert!(error.to_string().contains("refused the user name or password"), "{error}");
    fails(Gate::builder(&server.url.replace("//", "//:hunter2@")));
    let mut con = Client::open(server.url.replace("//", "//:another@")).unwrap().get_connection().unwrap();
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "user", "on", ">hunter2", "~*", "+ping"]);
    user.exec(&mut con).unwrap();
    let url = server.url.replace("//", "//user:hunter2@");
    {
        let gate = Gate::builder(&url).open().unwrap();
        assert_hidden(&gate);
        assert_kept(gate.mutex("kept").try_lock().unwrap_err());
        assert_kept(gate.mutex("kept").lock().unwrap_err());
        assert_kept(gate.latch("kept", 1).wait().unwrap_err());
    }
    let error = fails(Gate::builder(&format!("{url}1")));
    assert!(error.to_string().contains("'select'"), "{error}");
}

#[test]
fn secrets_are_hidden_if_an_open_gate_loses_its_server() {
    let mut server = own!(Server::private_tcp(&["--requirepass", "hunter2"]));
    let url = server.url.replace("//", "//:hunter2@");
    let gate = brief(Gate::builder(&url)).open().unwrap();
    look_at_all_of(&gate);
    server.kill();
    assert_kept(gate.mutex("kept").try_lock().unwrap_err());
    assert_kept(gate.mutex("kept").lock().unwrap_err());
}

#[test]
fn secrets_are_hidden_on_a_cluster() {
    let mut server = own!(Server::cluster_node());
    let mut set = redis::cmd("CONFIG");
    set.arg(&["SET", "requirepass", SECRET]);
    set.exec(&mut server.connection()).unwrap();
    let address = server.address().to_owned();
    let builder = Gate::builder(&format!("redis+cluster://:hunter2@{address}"));
    assert_hidden(&builder);
    let gate = brief(builder).open().unwrap();
    look_at_all_of(&gate);
    for url in ["redis://:hunter2-not@", "redis://user:hunter2@"] {
        fails(Gate::builder(&format!("{}{address},127.0.0.1:1", url.replace("redis", "redis+cluster"))));
    }
    fails(Gate::builder("redis+cluster://:hunter2@bad host"));
    server.kill();
    assert_kept(gate.mutex("kept").try_lock().unwrap_err());
    assert_kept(gate.mutex("kept").lock().unwrap_err());
}

#[test]
fn secrets_of_sentinels_and_of_the_master_are_hidden() {
    let url = "redis+sentinel://user:hunter2@127.0.0.1:1/master";
    fails(Gate::builder(url).sentinels_as("redis://finder:hunter2@any"));
    for bad in ["redis://user:hunter2@bad host", "redis://:1/hunter2@any"] {
        fails(Gate::builder(&bad.replace("redis", "redis+sentinel")));
        fails(Gate::builder(url).sentinels_as(bad));
    }
    let group = own!(Sentinels::new());
    for (_, mut con) in group.connections() {
        let mut set = redis::cmd("CONFIG");
        set.arg(&["SET", "requirepass", SECRET]);
        set.exec(&mut con).unwrap();
    }
    let sentinels = group.sentinels.addresses().join(",");
    let at = |login| Gate::builder(&format!("redis+sentinel://{login}{sentinels}/{MASTER}"));
    assert_hidden(&at(":hunter2@"));
    look_at_all_of(&brief(at(":hunter2@")).open().unwrap());
    let error = fails(at(":hunter2-not@"));
    assert!(error.to_string().contains("refused"), "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn secrets_and_the_private_key_are_hidden_with_tls() {
    let authority = Authority::new("one");
    let own = authority.identity();
    let arguments = ["--requirepass", "hunter2"];
    let mut server = own_tls!(authority.server(&own, &arguments));
    // A line of the key in PEM, and some of its bytes as Debug would print them.
    let line = own.key.lines().nth(1).unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let bytes = format!("{:?}", &key.secret_der()[40..60]);
    let bytes = bytes.trim_matches(['[', ']']);
    let hides_key = |shown: String| {
        let shows = [line, bytes, &format!("{:?}", line.as_bytes())]
            .iter()
            .any(|key| shown.contains(key.trim_matches(['[', ']'])));
        assert!(!shows, "{shown}");
    };
    let at = |login: &str| {
        let url = server.url.replace("//", &format!("//{login}@"));
        Gate::builder(&url).root_certificates(&authority.pem).client_certificate(&own.chain, &own.key)
    };
    hides_key(format!("{:?}", at(":hunter2")));
    let several = |url: &str| {
        let builder = Gate::builder(url);
        let builder = builder.root_certificates(&authority.pem);
        let builder = builder.client_certificate(&own.chain, &own.key);
        hides_key(format!("{builder:?}"));
        fails(builder);
    };
    several("rediss+cluster://:hunter2@127.0.0.1:1,127.0.0.1:1");
    several("rediss+sentinel://:hunter2@127.0.0.1:1/master");
    fails(at(":hunter2-not"));
    fails(Gate::builder(&server.url.replace("//", "//:hunter2@"))); // not trusted
    fails(Gate::builder(&server.url.replace("rediss://", "redis://:hunter2@")));
    let gate = brief(at(":hunter2")).open().unwrap();
    look_at_all_of(&gate);
    server.kill();
    assert_kept(gate.mutex("kept").try_lock().unwrap_err());
}

#[test]
fn no_secret_is_printed() {
    let server = own!(Server::private_tcp(&["--requirepass", "hunter2"]));
    let output = process("fail", &[&server.url]).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("failed as it should"), "{printed}");
    assert_silent(&printed);
}

/// What the process does whose output the test checks.
pub fn fail(arguments: &[String]) {
    let url = arguments[0].replace("//", "//:hunter2@");
    let wrong = url.replace("hunter2", "hunter2-not");
    let outcomes: [Result<Gate, CallError>; 3] = [
        Gate::open("redis://user:hunter2@bad host"),
        Gate::open(&wrong),
        Gate::open("redis://user:hunter2@127.0.0.1:1/"),
    ];
    assert!(outcomes.iter().all(Result::is_err));
    drop(Gate::open(&url).unwrap().mutex("kept").lock().unwrap());
    println!("failed as it should");
}
