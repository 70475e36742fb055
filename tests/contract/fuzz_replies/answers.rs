//! Promise: a call returns exactly what a valid reply says. Any other reply is an error, or is returned
//! exactly as it is.

use super::operations::{OPERATIONS, run};
use super::replies::{mutate, valid_reply};
use super::{StandIn, reply};
use crate::fuzz;

use proptest::prelude::*;
use redis::Value;

/// Runs every operation on this reply. A result must contain exactly what the reply said.
fn check_all(value: &Value) -> Result<(), TestCaseError> {
    for (name, operation) in OPERATIONS {
        if let Ok(reported) = run(*operation, &mut StandIn::answering(value)) {
            let said = if *name == "semaphore/inspect" { &readable(value) } else { value };
            prop_assert_eq!(&reported, said, "{}", name);
        }
    }
    Ok(())
}

/// As `inspect` lists ids: bytes that are not valid UTF-8 appear as the replacement character.
fn readable(value: &Value) -> Value {
    match value {
        Value::BulkString(bytes) => {
            Value::BulkString(String::from_utf8_lossy(bytes).into_owned().into_bytes())
        }
        Value::Array(items) => Value::Array(items.iter().map(readable).collect()),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(fuzz::cases(1_000))]

    #[test]
    fn any_reply_is_an_error_or_returned_exactly(value in fuzz::value()) {
        check_all(&value)?;
    }

    #[test]
    fn a_valid_reply_is_returned_exactly((script, value) in valid_reply()) {
        check_all(&value)?;
        for (name, operation) in OPERATIONS.iter().filter(|(name, _)| *name == script) {
            let reported = run(*operation, &mut StandIn::answering(&value));
            prop_assert!(reported.is_ok(), "{}: {:?}", name, reported);
        }
    }

    #[test]
    fn a_valid_reply_with_one_change_is_an_error_or_returned_exactly(
        (_, value) in valid_reply(),
        at in proptest::collection::vec(0..16_usize, 1..4),
        how in 0..12_u8,
        other in fuzz::value(),
    ) {
        check_all(&mutate(value, &at, how, &other))?;
    }
}

#[test]
fn an_id_that_is_not_utf8_is_listed_with_the_replacement_character() {
    let id = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
    let row = |id| Value::Array([vec![id], [2, 7, -1, 0].map(Value::Int).to_vec()].concat());
    let state = |id| {
        let numbers = [5, 0, 2, 1, 0, 7, 1_700_000_000_000];
        let lists = [Value::Array(vec![row(id)]), Value::Array(vec![])];
        Value::Array(numbers.into_iter().map(Value::Int).chain(lists).collect())
    };
    let (_, inspect) = OPERATIONS.iter().find(|(name, _)| *name == "semaphore/inspect").unwrap();
    let reported = run(*inspect, &mut StandIn::answering(&state(id(b"w\xff"))));
    assert_eq!(reported.unwrap(), state(id("w\u{fffd}".as_bytes())));
}

/// Found by fuzzing, reduced.
#[test]
fn an_almost_valid_grant_is_an_error() {
    let now = 1_700_000_000_000_i64;
    let good = [2, 7, now + 30_000, now, 2, 5];
    let of = |numbers: &[i64]| reply("granted", numbers.iter().map(|n| Value::Int(*n)).collect());
    let (_, acquire) = OPERATIONS[0];
    assert!(run(acquire, &mut StandIn::answering(&of(&good))).is_ok());
    for (place, wrong) in
        [(0, 3), (0, 0), (1, 0), (2, now), (2, -1), (2, now + 30_001), (2, -2), (3, -1), (5, 1 << 32)]
    {
        let mut numbers = good;
        numbers[place] = wrong;
        let reported = run(acquire, &mut StandIn::answering(&of(&numbers)));
        assert!(reported.is_err(), "{numbers:?}");
    }
    let longer = of(&[&good[..], &[1]].concat());
    assert!(run(acquire, &mut StandIn::answering(&longer)).is_err(), "a field too many");
    assert!(run(acquire, &mut StandIn::answering(&of(&good[..5]))).is_err());
    let mut simple = of(&good);
    if let Value::Array(fields) = &mut simple {
        fields[0] = Value::SimpleString("granted".to_owned());
    }
    assert!(run(acquire, &mut StandIn::answering(&simple)).is_err());
}
