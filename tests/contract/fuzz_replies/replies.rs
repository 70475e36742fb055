//! Random replies: valid ones of the contract, and the same with one change.

use super::{reply, text};

use proptest::prelude::*;
use redis::Value;
use std::collections::BTreeMap;

/// The replies of each script in the manifest, by word.
fn manifest() -> BTreeMap<String, Vec<(String, Vec<String>)>> {
    let manifest: serde_json::Value =
        serde_json::from_str(include_str!("../../../lua/manifest.json")).unwrap();
    let scripts = manifest["scripts"].as_object().unwrap();
    let replies = scripts.iter().map(|(name, script)| {
        let words = script["replies"].as_object().unwrap().iter().map(|(word, fields)| {
            let fields = fields.as_array().unwrap().iter();
            (word.clone(), fields.map(|field| field.as_str().unwrap().to_owned()).collect())
        });
        (name.clone(), words.collect())
    });
    replies.collect()
}

/// A valid value of this field. All times are close to `now`. The lease is the requested one, or any if
/// `None`.
fn field(script: &str, name: &str, now: i64, lease: Option<i64>) -> BoxedStrategy<Value> {
    let count = || (0..=2_147_483_647_i64).prop_map(Value::Int);
    let count_from_1 = || (1..=2_147_483_647_i64).prop_map(Value::Int);
    let end = move || match lease {
        Some(lease) => Just(Value::Int(now + lease)).boxed(),
        None => prop_oneof![Just(-1_i64), now + 1..=now + 3_155_760_000_000].prop_map(Value::Int).boxed(),
    };
    let id = "[a-z]{1,9}(/[0-9a-f]{8})?".prop_map(|id| text(&id));
    let rows = |row: Vec<BoxedStrategy<Value>>| {
        proptest::collection::vec(row.prop_map(Value::Array), 0..4).prop_map(Value::Array)
    };
    let field = |name| field(script, name, now, lease);
    match name {
        "permits" if script == "semaphore/try_acquire_several" => {
            let row =
                vec![count_from_1().boxed(), field("fence"), end().boxed(), count().boxed(), count().boxed()];
            proptest::collection::vec(row.prop_map(Value::Array), 2).prop_map(Value::Array).boxed()
        }
        "usages" => {
            let row = vec![count().boxed(), count().boxed(), count().boxed()];
            proptest::collection::vec(row.prop_map(Value::Array), 2).prop_map(Value::Array).boxed()
        }
        "permits" => Just(Value::Int(2)).boxed(),
        "fence" | "ticket" | "last_fence" => (1..1_i64 << 53).prop_map(Value::Int).boxed(),
        "now" => Just(Value::Int(now)).boxed(),
        "expires_at" => end().boxed(),
        "retry_after" | "next_expiry" => (0..100_000_i64).prop_map(Value::Int).boxed(),
        "index" => (1..=2_i64).prop_map(Value::Int).boxed(),
        "pinned" | "removed" => (0..=1_i64).prop_map(Value::Int).boxed(),
        "holders" => {
            let cooling_down = (0..=1_i64).prop_map(Value::Int);
            rows(vec![id.boxed(), count().boxed(), field("fence"), end().boxed(), cooling_down.boxed()])
                .boxed()
        }
        "waiters" => rows(vec![id.boxed(), count().boxed(), field("ticket"), count().boxed()]).boxed(),
        "contacts" | "members" => {
            let any = proptest::collection::vec(any::<u8>(), 0..9).prop_map(Value::BulkString);
            proptest::collection::vec(any, 0..4).prop_map(Value::Array).boxed()
        }
        _ => count().boxed(),
    }
}

/// A valid reply, and the name of its script.
pub fn valid_reply() -> BoxedStrategy<(String, Value)> {
    let all: Vec<_> = manifest()
        .into_iter()
        .flat_map(|(name, replies)| replies.into_iter().map(move |reply| (name.clone(), reply)))
        .collect();
    (proptest::sample::select(all), 1_600_000_000_000..2_000_000_000_000_i64)
        .prop_flat_map(|((script, (word, names)), now)| {
            // What the operations request.
            let lease = match (script.as_str(), word.as_str()) {
                ("semaphore/acquire", "granted") => Some(30_000),
                (_, "refreshed") => Some(1_000),
                _ => None,
            };
            let fields: Vec<_> = names.iter().map(|name| field(&script, name, now, lease)).collect();
            let is_one = word.is_empty() && names.len() == 1;
            (Just(script), fields).prop_map(move |(script, fields)| match (is_one, word.is_empty()) {
                (true, _) => (script, fields[0].clone()),
                (_, true) => (script, Value::Array(fields)),
                _ => (script, reply(&word, fields)),
            })
        })
        .boxed()
}

/// Changes one part of a reply, at any depth.
pub fn mutate(value: Value, at: &[usize], how: u8, other: &Value) -> Value {
    let Value::Array(mut fields) = value else {
        return match (how, value) {
            (0, Value::Int(number)) => Value::Int(number.wrapping_neg()),
            (1, Value::Int(number)) => text(&number.to_string()),
            (2, Value::BulkString(bytes)) => {
                Value::SimpleString(String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => other.clone(),
        };
    };
    let Some((first, deeper)) = at.split_first().filter(|_| !fields.is_empty()) else {
        fields.push(other.clone());
        return Value::Array(fields);
    };
    let place = first % fields.len();
    match how {
        3 => drop(fields.remove(place)),
        4 => fields.insert(place, other.clone()),
        5 => fields.truncate(place),
        6 => {
            let last = fields.len() - 1;
            fields.swap(place, last);
        }
        7 => fields.push(other.clone()),
        _ => fields[place] = mutate(fields[place].clone(), deeper, how, other),
    }
    Value::Array(fields)
}
