//! Promise: a random call gets a reply of the contract, or a clear error and changes nothing. Whatever
//! tickets callers pass, each grant can be refreshed and released by its fence.

use super::calls::{call, ticket};
use super::{Call, KEYS, Script, ends_in_white_space, load, run, scripts};
use crate::fuzz;
use crate::support::Server;

use proptest::prelude::*;
use redis::{Connection, RedisError, Value};
use std::time::{Duration, Instant};

/// Whether the manifest lists this reply.
fn fits(script: &Script, reply: &Value) -> bool {
    script.replies.iter().any(|(word, count)| match reply {
        Value::Array(fields) if !word.is_empty() => {
            let says = Value::BulkString(word.as_bytes().to_vec());
            fields.first() == Some(&says) && fields.len() == count + 1
        }
        Value::Array(_) if *count == 1 => true,
        Value::Array(fields) => fields.len() == *count,
        Value::Int(_) => word.is_empty() && *count == 1,
        _ => false,
    })
}

/// Whether each number consists of decimal digits only, or is a word that stands for one.
fn numbers_are_numbers(call: &Call) -> bool {
    let mut pairs = call.script.argv.iter().zip(&call.arguments);
    pairs.all(|(name, argument)| match name.as_str() {
        "id" | "inbox" | "contact" | "prefix" | "member ..." => true,
        "permits" if argument == b"all" => true,
        "expected" if argument == b"-1" => true,
        _ => !argument.is_empty() && argument.iter().all(u8::is_ascii_digit),
    })
}

/// Whether an argument was refused or a key has another type. Redis 6 reports the type only in the text.
fn is_clear(error: &RedisError) -> bool {
    error.code() == Some("LUAGATE") || error.to_string().contains("WRONGTYPE")
}

/// The content of a key, in a fixed order, and its time to live.
struct Content {
    values: Vec<Vec<u8>>,
    ttl: i64,
}

/// The content of each key. DUMP is not suitable: the order of a dumped hash changes while its table grows.
fn contents(con: &mut Connection, prefix: &str) -> Vec<Content> {
    let keys = KEYS.iter().chain(&["", "x", "{", "{}", "mutex:{u}:a"]);
    let keys: Vec<String> = keys.map(|key| format!("{prefix}:{key}")).collect();
    let mut kinds = redis::pipe();
    for key in &keys {
        kinds.cmd("PTTL").arg(key).cmd("TYPE").arg(key);
    }
    let kinds: Vec<Value> = kinds.query(con).unwrap();
    let mut read = redis::pipe();
    for (key, kind) in keys.iter().zip(kinds.chunks(2)) {
        match &kind[1] {
            Value::SimpleString(kind) if kind == "hash" => read.cmd("HGETALL").arg(key),
            Value::SimpleString(kind) if kind == "zset" => {
                read.cmd("ZRANGE").arg(key).arg((0, -1, "WITHSCORES"))
            }
            _ => read.cmd("LRANGE").arg(key).arg((0, -1)), // the scripts create no other type
        };
    }
    let all: Vec<Vec<Vec<u8>>> = read.query(con).unwrap();
    let contents = all.into_iter().zip(kinds.chunks(2)).map(|(values, kind)| {
        let mut values: Vec<Vec<Vec<u8>>> = values.chunks(2).map(<[_]>::to_vec).collect();
        if kind[1] == Value::SimpleString("hash".to_owned()) {
            values.sort();
        }
        Content { values: values.concat(), ttl: redis::from_redis_value(kind[0].clone()).unwrap() }
    });
    contents.collect()
}

/// Whether nothing changed, except for keys that expired in between. `took`: the time from before to after,
/// which a pause of the machine makes long.
fn is_same(before: &[Content], after: &[Content], took: Duration) -> bool {
    let mut pairs = before.iter().zip(after);
    pairs.all(|(before, after)| match before.ttl {
        ttl if (0..5_000 + took.as_millis() as i64).contains(&ttl) => true,
        ttl => before.values == after.values && (ttl < 0) == (after.ttl < 0),
    })
}

#[test]
fn random_calls_get_a_reply_of_the_contract_or_an_error_that_changed_nothing() {
    let server = Server::any();
    let mut con = server.connection();
    for script in scripts() {
        load(&mut con, &script);
    }
    let con = std::cell::RefCell::new(con);
    let refused = std::cell::Cell::new(0);
    let answered = std::cell::Cell::new(0);
    proptest!(fuzz::cases(1_500), |(call in call())| {
        let con = &mut *con.borrow_mut();
        let (begun, before) = (Instant::now(), contents(con, &server.prefix));
        match run(con, &server.prefix, &call) {
            Ok(reply) => {
                prop_assert!(fits(&call.script, &reply), "{:?}", reply);
                prop_assert!(numbers_are_numbers(&call), "{:?}", reply);
                answered.set(answered.get() + 1);
            }
            Err(error) => {
                prop_assert!(is_clear(&error), "{}", error);
                prop_assert!(!ends_in_white_space(&error), "{:?}", error);
                let after = contents(con, &server.prefix);
                prop_assert!(is_same(&before, &after, begun.elapsed()), "{} changed something", error);
                refused.set(refused.get() + 1);
            }
        }
    });
    // Enough calls of both kinds were made.
    assert!(answered.get() > 100, "{}", answered.get());
    assert!(refused.get() > 100, "{}", refused.get());
}

/// The words and numbers of a reply.
fn words(reply: &Value) -> Vec<String> {
    let Value::Array(fields) = reply else { panic!("{reply:?}") };
    fields.iter().map(|field| redis::from_redis_value(field.clone()).unwrap()).collect()
}

#[test]
fn whatever_tickets_callers_pass_each_grant_can_be_refreshed_and_released_by_its_fence() {
    let server = Server::any();
    let mut con = server.connection();
    let scripts = scripts();
    scripts.iter().for_each(|script| load(&mut con, script));
    let (con, cases) = (std::cell::RefCell::new(con), std::cell::Cell::new(0));
    proptest!(fuzz::cases(200), |(tickets in proptest::collection::vec(ticket(), 1..6))| {
        cases.set(cases.get() + 1);
        let prefix = format!("{}:tickets:{}", server.prefix, cases.get());
        let run = |name: &str, arguments: &[&[u8]]| {
            let script = scripts.iter().find(|script| script.name == format!("semaphore/{name}")).unwrap();
            let arguments = arguments.iter().map(|argument| argument.to_vec()).collect();
            let call = Call { script: script.clone(), keys: KEYS[..3].to_vec(), arguments };
            super::run(&mut con.borrow_mut(), &prefix, &call)
                .map(|reply| words(&reply))
                .map_err(|error| TestCaseError::fail(format!("{call:?}: {error}")))
        };
        for ticket in &tickets {
            let fence = run("acquire", &[b"holder", b"1", b"1", b"60000", b"0", b"", b"0"])?[2].clone();
            prop_assert_eq!(&run("refresh", &[b"holder", b"60000", fence.as_bytes()])?[0], "refreshed");
            prop_assert_eq!(&run("acquire", &[b"waiter", b"1", b"1", b"60000", b"60000", b"", ticket])?[0], "queued");
            prop_assert_eq!(&run("release", &[b"waiter", b"0"])?[0], "cancelled");
            prop_assert_eq!(&run("release", &[b"holder", b"0", fence.as_bytes()])?[0], "released");
        }
    });
}
