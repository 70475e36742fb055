//! Input from users and servers: names, ids, and the number of confirming replicas.

use super::server_error;
use crate::protocol::exchange::MinReplicas;
use crate::protocol::id::{check_id, new_inbox, secret_of};
use crate::protocol::keys::{Keys, LatchKeys, check_prefix, name_from, prefix_key, recent_key};
use crate::protocol::kind::FailureKind;
use crate::protocol::value::Value;
use sha1_smol::Sha1;
use std::time::Duration;
use uuid::Uuid;

pub fn check() {
    names();
    made_names();
    ids();
    replicas();
}

fn names() {
    let long = |length| "x".repeat(length);
    for (name, key) in [
        ("a", "app:mutex:{a}"),
        ("é", "app:mutex:{é}"),
        ("{g}:a", "app:mutex:{g}:a"),
        (&long(200), &format!("app:mutex:{{{}}}", long(200))),
        (&format!("{{g}}:{}", long(196)), &format!("app:mutex:{{g}}:{}", long(196))),
    ] {
        assert_eq!(Keys::mutex("app", name).unwrap().list()[0], key);
    }
    let (too_long, long_group) = (long(201), format!("{{g}}:{}", long(197)));
    for name in [
        "",
        &too_long,
        &long_group,
        "a b",
        "a\u{7f}",
        "é\u{a0}",
        "a{b",
        "a}",
        "{}:a",
        "{g}:",
        "{g}:a}",
        "{g{}:a",
    ] {
        assert!(Keys::mutex("app", name).is_err(), "{name}");
    }
    for (prefix, is_valid) in [
        ("a", true),
        ("my-app:v1.2_b", true),
        (&long(64), true),
        (&long(65), false),
        ("", false),
        ("a b", false),
        ("é", false),
        ("{a}", false),
    ] {
        assert_eq!(check_prefix(prefix).is_ok(), is_valid, "{prefix}");
        assert_eq!(LatchKeys::new(prefix, "a").is_ok(), is_valid, "{prefix}");
    }
    let keys = Keys::rwlock("app", "{g}:a").unwrap();
    assert_eq!((keys.tag(), Keys::semaphore("app", "a").unwrap().tag()), ("g", "a"));
    let others = ["app:rwlock.holders:{g}:a", "app:rwlock.queue:{g}:a"];
    assert_eq!(keys.list()[1..], others);
    let latch = LatchKeys::new("app", "a").unwrap();
    assert_eq!(latch.list(), ["app:latch:{a}", "app:latch.waiters:{a}"]);
    assert_eq!(recent_key("app", "a").unwrap(), "app:recent:{a}");
    assert_eq!(prefix_key("app", "a").unwrap(), "app:prefix:{a}");
}

fn made_names() {
    let long = |length| "x".repeat(length);
    for name in ["account:17", "{shop}:a", "é"] {
        assert_eq!(name_from(name), name);
    }
    let group = |length| format!("{{{}}}:", long(length));
    for (text, front) in [
        ("a\u{1}b c{d}".to_owned(), "a_b_c(d)".to_owned()),
        ("{shop}:a b".to_owned(), "{shop}:a_b".to_owned()),
        ("{sh op}:a".to_owned(), "(sh_op):a".to_owned()),
        (long(201), long(159)),
        (format!("{}é", long(200)), long(159)),
        (format!("{}é{}", long(157), long(99)), format!("{}é", long(157))),
        (format!("{}é{}", long(158), long(99)), long(158)),
        (format!("{}a b", group(100)), format!("{}a_b", group(100))),
        (format!("{}a b", group(101)), format!("({}):a_b", long(101))),
    ] {
        let name = name_from(&text);
        assert_eq!(name, format!("{front}~{}", Sha1::from(&text).digest()));
        assert_eq!(name_from(&name), name);
    }
}

fn ids() {
    assert!(check_id("worker/7").is_ok());
    assert!(check_id("").is_err());
    assert!(check_id("a b").is_err());
    let inbox = new_inbox("app", uuid::Uuid::new_v4());
    assert_eq!(inbox.strip_prefix("app:inbox:").map(str::len), Some(9));
    // Each of its 78 bits is random, whatever the version and the variant of the UUID.
    for (random, secret) in [
        (0x0123_4567_89ab_4def_8fed_cba9_8765_4321, "hMUZHm6yt_rm4"),
        (0x0000_0000_0000_4000_bfff_ffff_ffff_ffff, "__________AAA"),
    ] {
        assert_eq!(secret_of(Uuid::from_u128(random)), secret);
    }
}

fn replicas() {
    let two = |timeout| MinReplicas { count: 2, timeout };
    let command = |timeout| String::from_utf8(two(timeout).command()).unwrap();
    let wait = |ms: &str| format!("*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n${}\r\n{ms}\r\n", ms.len());
    assert_eq!(command(Duration::from_secs(1)), wait("1000"));
    assert_eq!(command(Duration::ZERO), wait("1")); // 0 would be for ever
    let check = |reply| two(Duration::ZERO).check(reply).map_err(|failure| failure.kind());
    assert_eq!(check(Some(Ok(Value::Int(2)))), Ok(()));
    let too_few = Err(FailureKind::TooFewReplicas);
    assert_eq!(check(Some(Ok(Value::Int(1)))), too_few);
    let one = MinReplicas { count: 1, timeout: Duration::ZERO };
    assert_eq!(one.check(None).map_err(|failure| failure.kind()), too_few);
    let refused = check(Some(crate::protocol::exchange::error_in(server_error("NOPERM no"))));
    assert_eq!(refused, Err(FailureKind::Permission));
}
