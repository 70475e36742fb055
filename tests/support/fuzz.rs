//! Generators for fuzzing: texts, numbers and replies that are unlikely in normal use.
#![allow(dead_code, reason = "each test program uses a part of this")]

use proptest::prelude::*;
use proptest::sample::select;
use redis::{PushKind, Value};

/// The number of test cases; twenty times as many with `LUAGATE_PROVE=long`.
pub fn cases(count: u32) -> ProptestConfig {
    let long = std::env::var("LUAGATE_PROVE").is_ok_and(|form| form == "long");
    ProptestConfig {
        cases: if long { 20 * count } else { count },
        failure_persistence: None, // a failure prints the smallest case, which then becomes a regular test
        ..ProptestConfig::default()
    }
}

/// Integers, most of them at the end of a range.
pub fn integer() -> BoxedStrategy<i64> {
    let edges = [0, 1, 2, 3, 1 << 31, 1 << 32, 1 << 52, 1 << 53, i64::MAX];
    let near_an_edge = (select(edges.to_vec()), -2..=2_i64).prop_map(|(n, d)| n.saturating_add(d));
    prop_oneof![
        4 => near_an_edge.clone(),
        2 => near_an_edge.prop_map(i64::wrapping_neg),
        1 => Just(i64::MIN),
        1 => any::<i64>(),
        2 => 1_700_000_000_000..1_800_000_000_000_i64,
    ]
    .boxed()
}

/// The first words of replies, and other words.
fn word() -> BoxedStrategy<Vec<u8>> {
    let words = [
        "granted",
        "held",
        "queued",
        "denied",
        "released",
        "cancelled",
        "gone",
        "refreshed",
        "lost",
        "resized",
        "unchanged",
        "counted",
        "already",
        "open",
        "closed",
        "none",
        "Granted",
        "granted ",
        "granted\0",
        "",
        "OK",
        "-1",
        "1",
        "0x1",
        "inf",
    ];
    prop_oneof![
        3 => select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
    .boxed()
}

/// A server error as received.
pub fn server_error() -> BoxedStrategy<Value> {
    let codes = [
        "ERR",
        "LUAGATE",
        "NOSCRIPT",
        "READONLY",
        "OOM",
        "WRONGTYPE",
        "MOVED 1 127.0.0.1:1",
        "ASK 1 x",
        "TRYAGAIN",
        "NOAUTH",
        "BUSY",
        "EXECABORT",
        "",
        "LOADING",
        "-",
        "CLUSTERDOWN",
        "CROSSSLOT",
        "NOPERM",
    ];
    let text = prop_oneof![
        select(&["", " ", ": ", " id: takes", " no limit", " \u{fffd}", " a: b: c"][..])
            .prop_map(str::to_owned),
        "[ -~\u{80}-\u{10ffff}]{0,40}",
    ];
    (select(codes.to_vec()), text)
        .prop_filter_map("one line", |(code, text)| {
            let line = format!("-{code}{text}\r\n");
            redis::parse_redis_value(line.as_bytes()).ok()
        })
        .boxed()
}

/// Any reply of the protocol.
pub fn value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        4 => integer().prop_map(Value::Int),
        4 => word().prop_map(Value::BulkString),
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
        1 => "[a-z]{0,8}|granted|held".prop_map(Value::SimpleString),
        1 => any::<f64>().prop_map(Value::Double),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => word().prop_map(Value::BigNumber),
        1 => server_error(),
    ];
    leaf.prop_recursive(3, 64, 10, |inner| {
        let some = proptest::collection::vec(inner.clone(), 0..10);
        let pairs = proptest::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            // Like a reply of a script: a word, then integers.
            4 => (word(), proptest::collection::vec(integer(), 0..9)).prop_map(|(word, numbers)| {
                let numbers = numbers.into_iter().map(Value::Int);
                Value::Array(std::iter::once(Value::BulkString(word)).chain(numbers).collect())
            }),
            3 => some.clone().prop_map(Value::Array),
            1 => some.clone().prop_map(Value::Set),
            1 => pairs.clone().prop_map(Value::Map),
            1 => some.prop_map(|data| Value::Push { kind: PushKind::Message, data }),
            1 => (inner, pairs).prop_map(|(data, attributes)| Value::Attribute { data: Box::new(data), attributes }),
        ]
    })
    .boxed()
}

/// Arbitrary text: spaces, braces, control characters, other writing systems, and lengths close to each
/// bound.
pub fn text() -> BoxedStrategy<String> {
    let seeds = [
        "a",
        "{",
        "}",
        "{a}",
        "{a}:b",
        "{a}:{b}",
        "{}:a",
        "{a}:",
        "}:{",
        "a b",
        "a\tb",
        "a\r\nb",
        "\0",
        "é",
        "\u{a0}",
        "\u{200b}",
        "\u{3000}",
        "\u{85}",
        "\u{feff}",
        "😀",
        "a/b",
        "a#b",
        "#",
        "%d",
        "%s%n",
        "'",
        "\"",
        "\\",
        "..",
        "*",
        "[",
        "the state",
        "last fence",
        "lost leases",
        "all",
        "-1",
        "0",
        "inf",
        "nan",
        "x:y:z",
        ":",
        "\u{7f}",
    ];
    let lengths = [1, 2, 63, 64, 65, 162, 163, 164, 199, 200, 201, 300, 70_000];
    prop_oneof![
        3 => proptest::collection::vec(select(seeds.to_vec()), 0..5).prop_map(|parts| parts.concat()),
        2 => "\\PC{0,30}",
        2 => ".{0,12}",
        2 => proptest::collection::vec(any::<char>(), 0..12).prop_map(|chars| chars.into_iter().collect()),
        1 => (select(lengths.to_vec()), select(&["x", "é"][..])).prop_map(|(n, with)| with.repeat(n / with.len())),
    ]
    .boxed()
}

/// The value as bytes of the protocol.
pub fn encode(value: &Value) -> Vec<u8> {
    let line = |sign: char, text: &str| format!("{sign}{text}\r\n").into_bytes();
    let many = |sign: char, count: usize, items: Vec<Vec<u8>>| {
        [line(sign, &count.to_string()), items.concat()].concat()
    };
    let pairs = |pairs: &[(Value, Value)]| pairs.iter().flat_map(|(a, b)| [encode(a), encode(b)]).collect();
    match value {
        Value::Nil => line('$', "-1"),
        Value::Int(number) => line(':', &number.to_string()),
        Value::BulkString(bytes) => {
            [line('$', &bytes.len().to_string()), bytes.clone(), b"\r\n".to_vec()].concat()
        }
        Value::Array(items) => many('*', items.len(), items.iter().map(encode).collect()),
        Value::SimpleString(text) => line('+', text),
        Value::Okay => line('+', "OK"),
        Value::Map(items) => many('%', items.len(), pairs(items)),
        Value::Set(items) => many('~', items.len(), items.iter().map(encode).collect()),
        Value::Double(number) => line(',', &number.to_string()),
        Value::Boolean(yes) => line('#', if *yes { "t" } else { "f" }),
        Value::Push { data, .. } => many('>', data.len(), data.iter().map(encode).collect()),
        Value::ServerError(error) => {
            line('-', &format!("{} {}", error.code(), error.details().unwrap_or_default()))
        }
        _ => line('_', ""),
    }
}
