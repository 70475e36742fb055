//! Promise: whatever a client in any language passes to a script, the answer is one of the contract, or an error that says
//! so and has changed nothing; never an error of Lua.

use crate::fuzz;
use crate::support::Server;

use proptest::prelude::*;
use proptest::sample::select;
use redis::{Connection, RedisError, RedisResult, Value};

/// One script of the manifest.
#[derive(Clone)]
struct Script {
    name: String,
    text: String,
    sha1: String,
    keys: Vec<String>,
    argv: Vec<String>,
    /// Each word, and how many fields follow it.
    replies: Vec<(String, usize)>,
}

fn words(value: &serde_json::Value) -> Vec<String> {
    let words = value.as_array().unwrap().iter();
    words.map(|word| word.as_str().unwrap().to_owned()).collect()
}

fn scripts() -> Vec<Script> {
    let manifest: serde_json::Value = serde_json::from_str(include_str!("../../lua/manifest.json")).unwrap();
    let scripts = manifest["scripts"].as_object().unwrap().iter();
    let scripts = scripts.map(|(name, script)| Script {
        name: name.clone(),
        text: std::fs::read_to_string(format!("lua/{}", script["file"].as_str().unwrap())).unwrap(),
        sha1: script["sha1"].as_str().unwrap().to_owned(),
        keys: words(&script["keys"]),
        argv: words(&script["argv"]),
        replies: script["replies"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(word, fields)| (word.clone(), fields.as_array().unwrap().len()))
            .collect(),
    });
    scripts.collect()
}

/// All keys that a call here may name, without the test's prefix: two mutexes of one group, a latch, and the lists.
const KEYS: [&str; 10] = [
    "mutex:{t}:a",
    "mutex.holders:{t}:a",
    "mutex.queue:{t}:a",
    "mutex:{t}:b",
    "mutex.holders:{t}:b",
    "mutex.queue:{t}:b",
    "latch:{t}",
    "latch.waiters:{t}",
    "recent:{t}",
    "prefix:{t}",
];

/// The keys that a script is for.
fn right_keys(script: &Script, other: bool) -> Vec<&'static str> {
    let own = match script.keys[0].as_str() {
        "meta" if script.keys.len() > 3 => &KEYS[..6],
        "meta" if other => &KEYS[3..6],
        "meta" => &KEYS[..3],
        "latch" => &KEYS[6..8],
        "recent" => &KEYS[8..9],
        _ => &KEYS[9..],
    };
    own.to_vec()
}

fn keys(script: &Script) -> BoxedStrategy<Vec<&'static str>> {
    let [a, b] = [false, true].map(|other| right_keys(script, other));
    let others = [&KEYS[..], &["", "x", "{", "{}", "mutex:{u}:a"]].concat();
    let (count, twice, cut) = (a.len(), a.clone(), a.clone());
    prop_oneof![
        6 => Just(a),
        3 => Just(b),
        1 => (0..count, 0..count).prop_map(move |(to, from)| {
            let mut keys = twice.clone();
            keys[to] = keys[from];
            keys
        }),
        1 => (0..8_usize).prop_map(move |count| cut.iter().copied().cycle().take(count).collect()),
        1 => proptest::collection::vec(select(others), 0..8),
    ]
    .boxed()
}

/// A value that this argument is for.
fn right(argument: &str) -> BoxedStrategy<Vec<u8>> {
    let one_of = |words: &[&str]| {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        select(words).boxed()
    };
    match argument {
        "id" => one_of(&["a", "b", "c", "w/1"]),
        "permits" => one_of(&["1", "2", "all", "2147483647"]),
        "limit" => one_of(&["0", "1", "2", "3", "2147483647"]),
        "expected" => one_of(&["-1", "0", "1", "2"]),
        "keep" | "offset" => one_of(&["0", "1", "2"]),
        "count" => one_of(&["1", "2", "1000"]),
        "lease_ms" => one_of(&["0", "1", "60000", "3155760000000"]),
        "wait_ms" => one_of(&["0", "1", "60000", "86400000"]),
        "inbox" => one_of(&["", "nobody:listens", "nobody#secret"]),
        "ticket" => one_of(&["0", "1", "4503599627370496"]),
        _ => one_of(&["1", "60000", "al", "bob", ""]),
    }
}

/// Anything: numbers that are none, the ends of each range and what is beyond, words that are none.
fn hostile() -> BoxedStrategy<Vec<u8>> {
    let texts = [
        "",
        "0",
        "00",
        "01",
        "-0",
        "-1",
        "-2",
        "+1",
        "1.0",
        "1.5",
        "0x3",
        "1e0",
        "1e3",
        "1e308",
        "1e999",
        " 2",
        "2 ",
        "2\0",
        "\0",
        "2\n",
        "٣",
        "nan",
        "-nan",
        "inf",
        "-inf",
        "all",
        "ALL",
        "nil",
        "true",
        "{}",
        "[1]",
        "the state",
        "last fence",
        "lost leases",
        "2147483647",
        "2147483648",
        "4294967297",
        "4503599627370496",
        "4503599627370497",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "100000000000000000000000000000000000000000",
        "3155760000000",
        "3155760000001",
        "86400000",
        "86400001",
        "60000",
        "60001",
        "1000",
        "1001",
        "#",
        "a#",
        "#a",
        "a#b",
        "a##b",
        "%s%d",
        "w 1 1 1 1 x",
        "a b",
        "a\u{a0}b",
        "é",
    ];
    let lengths = [200, 201, 300, 301, 65_536];
    prop_oneof![
        6 => select(texts.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        2 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => select(lengths.to_vec()).prop_map(|count| vec![b'x'; count]),
        1 => select(lengths.to_vec()).prop_map(|count| vec![b'9'; count]),
        1 => fuzz::integer().prop_map(|number| number.to_string().into_bytes()),
    ]
    .boxed()
}

fn arguments(script: &Script) -> BoxedStrategy<Vec<Vec<u8>>> {
    let each: Vec<_> = script.argv.iter().map(|argument| prop_oneof![5 => right(argument), 1 => hostile()]).collect();
    let many = select(vec![0_usize, 1, 2, 999, 1_000, 1_001, 9_000]);
    prop_oneof![
        12 => each.clone(),
        1 => (each.clone(), hostile()).prop_map(|(some, one)| [some, vec![one]].concat()),
        1 => (each, 0..8_usize).prop_map(|(mut some, count)| {
            some.truncate(count);
            some
        }),
        1 => (hostile(), many).prop_map(|(one, count)| vec![one; count]),
    ]
    .boxed()
}

#[derive(Clone)]
struct Call {
    script: Script,
    keys: Vec<&'static str>,
    arguments: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let arguments = self.arguments.iter().take(12);
        let shown: Vec<_> = arguments.map(|bytes| bytes[..bytes.len().min(60)].escape_ascii().to_string()).collect();
        let (name, keys, count) = (&self.script.name, &self.keys, self.arguments.len());
        write!(f, "{name} {keys:?}, {count} arguments: {shown:?}")
    }
}

fn call() -> BoxedStrategy<Call> {
    select(scripts())
        .prop_flat_map(|script| {
            let (keys, arguments) = (keys(&script), arguments(&script));
            (Just(script), keys, arguments).prop_map(|(script, keys, arguments)| Call { script, keys, arguments })
        })
        .boxed()
}

fn load(con: &mut Connection, script: &Script) {
    let load = ["LOAD", &script.text];
    let sha1: String = redis::cmd("SCRIPT").arg(&load).query(con).unwrap();
    assert_eq!(sha1, script.sha1, "{}: `./dev manifest`", script.name);
}

fn run(con: &mut Connection, prefix: &str, call: &Call) -> RedisResult<Value> {
    let mut command = redis::cmd("EVALSHA");
    command.arg(&call.script.sha1).arg(call.keys.len());
    for key in &call.keys {
        command.arg(format!("{prefix}:{key}"));
    }
    for argument in &call.arguments {
        command.arg(&argument[..]);
    }
    command.query(con)
}

/// Whether this is a reply that the manifest tells of.
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

/// Whether each number is decimal digits and nothing else, or a word that stands for one.
fn numbers_are_numbers(call: &Call) -> bool {
    let mut pairs = call.script.argv.iter().zip(&call.arguments);
    pairs.all(|(name, argument)| match name.as_str() {
        "id" | "inbox" | "contact" | "prefix" | "member ..." => true,
        "permits" if argument == b"all" => true,
        "expected" if argument == b"-1" => true,
        _ => !argument.is_empty() && argument.iter().all(u8::is_ascii_digit),
    })
}

/// An argument was refused, or a key holds something else; on Redis 6 only the text says so.
fn is_clear(error: &RedisError) -> bool {
    error.code() == Some("LUAGATE") || error.to_string().contains("WRONGTYPE")
}

/// White space at the end of an error, which some clients remove and others do not.
fn ends_in_white_space(error: &RedisError) -> bool {
    let text = error.detail().expect("an error says more than its code");
    text.ends_with(char::is_whitespace)
}

/// What a key holds, in an order of its own, and how long it lives.
struct Content {
    values: Vec<Vec<u8>>,
    ttl: i64,
}

/// What each key holds. DUMP would not do: a hash is dumped in an order that changes while its table grows.
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
            Value::SimpleString(kind) if kind == "zset" => read.cmd("ZRANGE").arg(key).arg((0, -1, "WITHSCORES")),
            _ => read.cmd("LRANGE").arg(key).arg((0, -1)), // no script makes another kind
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

/// Whether nothing was changed but by time, which ends some keys in between.
fn is_same(before: &[Content], after: &[Content]) -> bool {
    let mut pairs = before.iter().zip(after);
    pairs.all(|(before, after)| match before.ttl {
        0..5_000 => true,
        ttl => before.values == after.values && (ttl < 0) == (after.ttl < 0),
    })
}

#[test]
fn an_answer_of_the_contract_or_an_error_that_changed_nothing() {
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
        let before = contents(con, &server.prefix);
        match run(con, &server.prefix, &call) {
            Ok(reply) => {
                prop_assert!(fits(&call.script, &reply), "{:?}", reply);
                prop_assert!(numbers_are_numbers(&call), "{:?}", reply);
                answered.set(answered.get() + 1);
            }
            Err(error) => {
                prop_assert!(is_clear(&error), "{}", error);
                prop_assert!(!ends_in_white_space(&error), "{:?}", error);
                prop_assert!(is_same(&before, &contents(con, &server.prefix)), "{} changed something", error);
                refused.set(refused.get() + 1);
            }
        }
    });
    // Both were fuzzed in earnest.
    assert!(answered.get() > 100, "{}", answered.get());
    assert!(refused.get() > 100, "{}", refused.get());
}

/// What the fuzzing found, in short: a caller that has to join a queue which is no queue, where a lease has ended too.
#[test]
fn a_queue_of_another_kind_is_refused_before_a_lease_is_taken_back() {
    let server = Server::any();
    let mut con = server.connection();
    let gate = server.gate();
    let semaphore = gate.semaphore("kinds", 2);
    let lease = |ms| semaphore.clone().lease(std::time::Duration::from_millis(ms));
    let (brief, long) = (lease(5).try_acquire().unwrap(), lease(60_000).try_acquire().unwrap());
    let keys = luagate::scripts::Keys::semaphore(&server.prefix, "kinds").unwrap();
    let [_, holders, queue] = keys.names();
    redis::cmd("SET").arg(queue).arg("no queue").exec(&mut con).unwrap();
    // Until the lease has ended by the server's clock.
    let ends: u64 =
        redis::cmd("ZRANGE").arg(holders).arg((0, 0, "WITHSCORES")).query::<(String, u64)>(&mut con).unwrap().1;
    let now = |con: &mut Connection| {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(con).unwrap();
        seconds * 1_000 + micros / 1_000
    };
    while now(&mut con) <= ends {}
    let ask = luagate::scripts::semaphore::Ask {
        id: "c",
        permits: Some(2),
        limit: 2,
        lease_ms: 10,
        wait_ms: 60_000,
        ..Default::default()
    };
    let error = luagate::scripts::semaphore::acquire(&mut con, &keys, &ask).unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let held: usize = redis::cmd("ZCARD").arg(holders).query(&mut con).unwrap();
    assert_eq!(held, 2, "the ended lease was taken back");
    drop((brief, long));
}

/// What the fuzzing found, in short: keys that are missing, or one where there should be several.
#[test]
fn the_wrong_keys_are_told() {
    let server = Server::any();
    let mut con = server.connection();
    for script in scripts() {
        load(&mut con, &script);
        let arguments = script.argv.iter().map(|argument| match argument.as_str() {
            "id" => b"a".to_vec(),
            "inbox" => Vec::new(),
            _ => b"1".to_vec(),
        });
        let arguments: Vec<_> = arguments.collect();
        let right = right_keys(&script, false);
        let twice = vec![right[0]; right.len()];
        for keys in [vec![], twice] {
            if keys == right {
                continue; // it takes one
            }
            let call = Call { script: script.clone(), keys, arguments: arguments.clone() };
            let error = run(&mut con, &server.prefix, &call).unwrap_err();
            assert_eq!(error.code(), Some("LUAGATE"), "{call:?}: {error}");
            assert!(error.to_string().contains("keys: takes"), "{call:?}: {error}");
        }
    }
    assert_eq!(server.all_keys(), [""; 0]);
}

#[test]
fn no_error_ends_in_white_space() {
    let server = Server::any();
    let mut con = server.connection();
    for script in scripts() {
        load(&mut con, &script);
        let right = right_keys(&script, false);
        let (none, too_many) = (vec![], [right.clone(), right.clone()].concat());
        let ending_in_a_blank = vec!["x{t} "; right.len()];
        let mut refused = 0;
        for keys in [none, too_many, ending_in_a_blank, right] {
            for count in 0..=script.argv.len() + 1 {
                for argument in ["", " ", "1", "1 ", "#"] {
                    let call = Call {
                        script: script.clone(),
                        keys: keys.clone(),
                        arguments: vec![argument.as_bytes().to_vec(); count],
                    };
                    if let Err(error) = run(&mut con, &server.prefix, &call) {
                        assert!(!ends_in_white_space(&error), "{call:?}: {error:?}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 0, "{}", script.name);
    }
}

#[test]
fn thousands_of_keys_or_arguments_are_refused_as_any_wrong_number() {
    let server = Server::any();
    let mut con = server.connection();
    for script in scripts() {
        load(&mut con, &script);
        if script.name == "semaphore/acquire" {
            // A permit that is held, since what exists is another branch of the scripts.
            let arguments = ["holder", "1", "2", "60000", "0", "", "0"];
            let held = Call {
                keys: right_keys(&script, false),
                arguments: arguments.map(|text| text.as_bytes().to_vec()).to_vec(),
                script,
            };
            run(&mut con, &server.prefix, &held).unwrap();
        }
    }
    for script in scripts() {
        let right = right_keys(&script, false);
        let too_many_keys = [right.clone(), vec![right[0]; 9_000]].concat();
        let too_many_arguments = vec![b"1".to_vec(); 9_000];
        let few = vec![b"1".to_vec(); script.argv.len()];
        for (keys, arguments) in [(right, too_many_arguments), (too_many_keys, few)] {
            let call = Call { script: script.clone(), keys, arguments };
            let error = run(&mut con, &server.prefix, &call).unwrap_err();
            assert_eq!(error.code(), Some("LUAGATE"), "{call:?}: {error}");
        }
    }
}
