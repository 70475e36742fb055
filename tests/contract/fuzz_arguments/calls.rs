//! Random calls: valid and invalid keys and arguments, and arbitrary bytes.

use super::{Call, KEYS, Script, right_keys, scripts};
use crate::fuzz;

use proptest::prelude::*;
use proptest::sample::select;
use std::time::{Duration, UNIX_EPOCH};

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

/// A valid value for this argument.
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
        "ticket" => ticket(),
        _ => one_of(&["1", "60000", "al", "bob", ""]),
    }
}

/// No ticket, the first and the last accepted number, and tickets that no server gave: half a minute, two
/// minutes or a year ahead of the clock.
pub fn ticket() -> BoxedStrategy<Vec<u8>> {
    let ahead =
        |seconds| (UNIX_EPOCH.elapsed().unwrap() + Duration::from_secs(seconds)).as_micros().to_string();
    let invented = select(vec![30, 120, 31_536_000]).prop_map(ahead);
    let fixed = select(vec!["0", "1", "4503599627370496", "9007199254740991"]).prop_map(str::to_owned);
    prop_oneof![fixed, invented].prop_map(String::into_bytes).boxed()
}

/// Numbers, and texts that resemble numbers.
const NUMBERS: &[&str] = &[
    "", "0", "00", "01", "-0", "-1", "-2", "+1", "1.0", "1.5", "0x3", "1e0", "1e3", "1e308", "1e999", " 2",
    "2 ", "2\0", "\0", "2\n", "٣", "nan", "-nan", "inf", "-inf",
];

/// Words that are not valid here.
const WORDS: &[&str] = &["all", "ALL", "nil", "true", "{}", "[1]", "the state", "last fence", "lost leases"];

/// The ends of each range and values beyond.
const ENDS: &[&str] = &[
    "2147483647",
    "2147483648",
    "4294967297",
    "4503599627370496",
    "9007199254740991",
    "9007199254740992",
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
];

/// Characters with a meaning in an inbox, a format or a message; blanks; and a letter beyond ASCII.
const MARKS: &[&str] = &["#", "a#", "#a", "a#b", "a##b", "%s%d", "w 1 1 1 1 x", "a b", "a\u{a0}b", "é"];

/// Any value: from the lists above, or arbitrary bytes.
fn hostile() -> BoxedStrategy<Vec<u8>> {
    let texts = [NUMBERS, WORDS, ENDS, MARKS].concat();
    let lengths = [200, 201, 300, 301, 65_536];
    prop_oneof![
        6 => select(texts).prop_map(|text| text.as_bytes().to_vec()),
        2 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => select(lengths.to_vec()).prop_map(|count| vec![b'x'; count]),
        1 => select(lengths.to_vec()).prop_map(|count| vec![b'9'; count]),
        1 => fuzz::integer().prop_map(|number| number.to_string().into_bytes()),
    ]
    .boxed()
}

fn arguments(script: &Script) -> BoxedStrategy<Vec<Vec<u8>>> {
    let each: Vec<_> =
        script.argv.iter().map(|argument| prop_oneof![5 => right(argument), 1 => hostile()]).collect();
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

pub fn call() -> BoxedStrategy<Call> {
    select(scripts())
        .prop_flat_map(|script| {
            let (keys, arguments) = (keys(&script), arguments(&script));
            (Just(script), keys, arguments).prop_map(|(script, keys, arguments)| Call {
                script,
                keys,
                arguments,
            })
        })
        .boxed()
}
