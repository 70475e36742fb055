//! Promise: whatever answers, a call of the scripts ends with a typed error or with what the reply said, word by word: no
//! panic, and no permit out of a reply that is not exactly a grant.

use crate::fuzz;

use luagate::errors::CallError;
use luagate::scripts::semaphore::{
    self, Answer, Ask, Grant, LookupAnswer, ReleaseAnswer, ResizeAnswer, TryLockAllAnswer, Usage,
};
use luagate::scripts::{Keys, LatchKeys, autocomplete, latch};
use proptest::prelude::*;
use redis::{ConnectionLike, ErrorKind, RedisError, RedisResult, Value};
use std::collections::BTreeMap;

/// Stands in for a connection: answers whatever it was told to.
pub(crate) struct StandIn {
    pub(crate) single: RedisResult<Value>,
    pub(crate) several: RedisResult<Vec<Value>>,
}

impl StandIn {
    fn answering(value: &Value) -> StandIn {
        StandIn { single: value.clone().extract_error(), several: Ok(Vec::new()) }
    }
}

impl ConnectionLike for StandIn {
    fn req_packed_command(&mut self, _: &[u8]) -> RedisResult<Value> {
        self.single.clone()
    }

    fn req_packed_commands(&mut self, _: &[u8], _: usize, _: usize) -> RedisResult<Vec<Value>> {
        self.several.clone()
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

fn int(number: impl TryInto<i64>) -> Value {
    Value::Int(number.try_into().unwrap_or_else(|_| panic!("no reply can say this")))
}

fn or_never(number: Option<u64>) -> Value {
    number.map_or(Value::Int(-1), int)
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn reply(word: &str, fields: Vec<Value>) -> Value {
    Value::Array([vec![text(word)], fields].concat())
}

/// As a reply says it. A grant that nobody can have is none.
fn grant(grant: &Grant) -> Vec<Value> {
    assert!(grant.permits > 0 && grant.fence > 0, "{grant:?}");
    assert!(grant.expires_at.is_none_or(|end| end > grant.now), "{grant:?}");
    let Grant { permits, fence, expires_at, now } = *grant;
    vec![int(permits), int(fence), or_never(expires_at), int(now)]
}

fn usage(usage: &Usage) -> Vec<Value> {
    vec![int(usage.in_use), int(usage.limit)]
}

fn locks(grants: &[Grant]) -> Vec<Value> {
    assert_eq!(grants.len(), 2);
    let pairs = grants.iter().map(|lock| {
        assert_eq!((lock.permits, lock.now), (1, grants[0].now));
        Value::Array(grant(lock)[1..3].to_vec())
    });
    vec![int(grants[0].now), Value::Array(pairs.collect())]
}

fn list(items: Vec<Vec<u8>>) -> Value {
    Value::Array(items.into_iter().map(Value::BulkString).collect())
}

/// Runs an operation, and says what it answered as the reply that says exactly that.
type Operation = fn(&mut StandIn, &Keys, &LatchKeys) -> Result<Value, CallError>;

const OPERATIONS: &[(&str, Operation)] = &[
    ("semaphore/acquire", |con, keys, _| {
        let ask = Ask { id: "id", permits: Some(2), limit: 5, ..Ask::default() };
        acquired(semaphore::acquire(con, keys, &ask)?, Some(2))
    }),
    ("semaphore/acquire", |con, keys, _| {
        let ask = Ask { id: "id", permits: None, limit: 5, ..Ask::default() };
        acquired(semaphore::acquire(con, keys, &ask)?, None)
    }),
    ("semaphore/release", |con, keys, _| {
        Ok(match semaphore::release(con, keys, "id", 0, None)? {
            ReleaseAnswer::Released { left, usage: u } => reply("released", [vec![int(left)], usage(&u)].concat()),
            ReleaseAnswer::Cancelled => reply("cancelled", vec![]),
            ReleaseAnswer::Gone => reply("gone", vec![]),
        })
    }),
    ("semaphore/lookup", |con, keys, _| {
        Ok(match semaphore::lookup(con, keys, "id")? {
            LookupAnswer::Held(held) => reply("held", grant(&held)),
            LookupAnswer::Queued { ticket, position, now } => {
                reply("queued", vec![int(ticket), int(position), int(now)])
            }
            LookupAnswer::Gone { now } => reply("gone", vec![int(now)]),
        })
    }),
    ("semaphore/resize", |con, keys, _| {
        Ok(match semaphore::resize(con, keys, 3, None)? {
            ResizeAnswer::Resized { old, new, in_use } => reply("resized", vec![int(old), int(new), int(in_use)]),
            ResizeAnswer::Unchanged { current, in_use } => reply("unchanged", vec![int(current), int(in_use)]),
        })
    }),
    ("semaphore/inspect", |con, keys, _| {
        let state = semaphore::inspect(con, keys, 0, 10)?;
        let holders = state
            .holders
            .iter()
            .map(|row| Value::Array(vec![text(&row.id), int(row.permits), int(row.fence), or_never(row.expires_at)]));
        let waiters = state
            .waiters
            .iter()
            .map(|row| Value::Array(vec![text(&row.id), int(row.permits), int(row.ticket), int(row.patience_until)]));
        Ok(Value::Array(vec![
            int(state.limit),
            int(u8::from(state.pinned)),
            int(state.in_use),
            int(state.holder_count),
            int(state.waiter_count),
            int(state.last_fence),
            int(state.now),
            Value::Array(holders.collect()),
            Value::Array(waiters.collect()),
        ]))
    }),
    ("semaphore/try_lock_all", |con, keys, _| {
        Ok(match semaphore::try_lock_all(con, &[keys, keys], "id", 1_000)? {
            TryLockAllAnswer::Granted(grants) => reply("granted", locks(&grants)),
            TryLockAllAnswer::Held(grants) => reply("held", locks(&grants)),
            TryLockAllAnswer::Denied { place, next_expiry, usage: u, waiting, now } => {
                assert!(place < 2);
                let fields = [vec![int(place + 1), or_never(next_expiry)], usage(&u), vec![int(waiting), int(now)]];
                reply("denied", fields.concat())
            }
        })
    }),
    ("latch/count_down", |con, _, keys| {
        Ok(match latch::count_down(con, keys, "id", 2, 1_000)? {
            latch::CountDownAnswer::Counted { left, count, now } => {
                reply("counted", vec![int(left), int(count), int(now)])
            }
            latch::CountDownAnswer::Already { left, count, now } => {
                reply("already", vec![int(left), int(count), int(now)])
            }
        })
    }),
    ("latch/wait", |con, _, keys| {
        Ok(match latch::wait(con, keys, 2, 1_000, 1_000, "")? {
            latch::WaitAnswer::Open { count, now } => reply("open", vec![int(count), int(now)]),
            latch::WaitAnswer::Closed { left, count, retry_after, now } => {
                reply("closed", vec![int(left), int(count), int(retry_after), int(now)])
            }
        })
    }),
    ("latch/delete", |con, _, keys| {
        Ok(match latch::delete(con, keys)? {
            latch::DeleteAnswer::Deleted { now } => reply("deleted", vec![int(now)]),
            latch::DeleteAnswer::None { now } => reply("none", vec![int(now)]),
        })
    }),
    ("latch/count", |con, _, keys| {
        Ok(match latch::count(con, keys)? {
            latch::CountAnswer::None { now } => reply("none", vec![int(now)]),
            latch::CountAnswer::Open { count, now } => reply("open", vec![int(count), int(now)]),
            latch::CountAnswer::Closed { left, count, now } => reply("closed", vec![int(left), int(count), int(now)]),
        })
    }),
    ("autocomplete/recent_add", |con, _, _| Ok(int(autocomplete::recent_add(con, "key", "a", 1)?))),
    ("autocomplete/recent_remove", |con, _, _| Ok(int(u8::from(autocomplete::recent_remove(con, "key", "a")?)))),
    ("autocomplete/recent_match", |con, _, _| Ok(list(autocomplete::recent_match(con, "key", "a", 1)?))),
    ("autocomplete/prefix_add", |con, _, _| Ok(int(autocomplete::prefix_add(con, "key", &["a"])?))),
    ("autocomplete/prefix_remove", |con, _, _| Ok(int(autocomplete::prefix_remove(con, "key", &["a"])?))),
    ("autocomplete/prefix_match", |con, _, _| Ok(list(autocomplete::prefix_match(con, "key", "a", 1)?))),
    ("semaphore/refresh", |con, keys, _| {
        Ok(match semaphore::refresh(con, keys, "id", 1_000, None)? {
            Some(refreshed) => reply("refreshed", grant(&refreshed)),
            // The only field that is not passed on.
            None => match con.single.as_ref().ok().or(con.several.iter().flatten().last()) {
                Some(Value::Array(fields)) if matches!(fields[..], [_, Value::Int(0..)]) => {
                    reply("lost", fields[1..].to_vec())
                }
                other => panic!("lost by {other:?}"),
            },
        })
    }),
];

fn acquired(answer: Answer, asked: Option<u32>) -> Result<Value, CallError> {
    Ok(match answer {
        Answer::Granted(granted, u) => {
            assert!(asked.is_none_or(|asked| asked == granted.permits), "{granted:?}");
            reply("granted", [grant(&granted), usage(&u)].concat())
        }
        Answer::Held(held, u) => reply("held", [grant(&held), usage(&u)].concat()),
        Answer::Queued { ticket, position, retry_after, usage: u, now } => {
            let fields = [vec![int(ticket), int(position), int(retry_after)], usage(&u), vec![int(now)]];
            reply("queued", fields.concat())
        }
        Answer::Denied { next_expiry, usage: u, waiting, now } => {
            let fields = [vec![or_never(next_expiry)], usage(&u), vec![int(waiting), int(now)]];
            reply("denied", fields.concat())
        }
        Answer::AboveLimit { limit, now } => reply("above_limit", vec![int(limit), int(now)]),
    })
}

fn run(operation: Operation, con: &mut StandIn) -> Result<Value, CallError> {
    let keys = Keys::semaphore("luagate", "{fuzz}:a").unwrap();
    let latch_keys = LatchKeys::new("luagate", "fuzz").unwrap();
    operation(con, &keys, &latch_keys)
}

/// Runs every operation on this reply: what it answers, if anything, is what the reply said.
fn check_all(value: &Value) -> Result<(), TestCaseError> {
    for (name, operation) in OPERATIONS {
        if let Ok(told) = run(*operation, &mut StandIn::answering(value)) {
            prop_assert_eq!(&told, value, "{}", name);
        }
    }
    Ok(())
}

/// The replies of each script, by word, as the manifest has them.
fn manifest() -> BTreeMap<String, Vec<(String, Vec<String>)>> {
    let manifest: serde_json::Value = serde_json::from_str(include_str!("../../lua/manifest.json")).unwrap();
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

/// A value that this field may have. All times of a reply are about `now`; the lease is what was asked for, or any.
fn field(name: &str, now: i64, lease: Option<i64>) -> BoxedStrategy<Value> {
    let count = || (0..=2_147_483_647_i64).prop_map(Value::Int);
    let end = move || match lease {
        Some(lease) => Just(Value::Int(now + lease)).boxed(),
        None => prop_oneof![Just(-1_i64), now + 1..=now + 3_155_760_000_000].prop_map(Value::Int).boxed(),
    };
    let id = "[a-z]{1,9}(/[0-9a-f]{8})?".prop_map(|id| text(&id));
    let rows = |row: Vec<BoxedStrategy<Value>>| {
        proptest::collection::vec(row.prop_map(Value::Array), 0..4).prop_map(Value::Array)
    };
    match name {
        "permits" => Just(Value::Int(2)).boxed(),
        "fence" | "ticket" | "last_fence" => (1..1_i64 << 53).prop_map(Value::Int).boxed(),
        "now" => Just(Value::Int(now)).boxed(),
        "expires_at" => end().boxed(),
        "retry_after" | "next_expiry" => (0..100_000_i64).prop_map(Value::Int).boxed(),
        "place" => (1..=2_i64).prop_map(Value::Int).boxed(),
        "pinned" | "removed" => (0..=1_i64).prop_map(Value::Int).boxed(),
        "locks" => {
            let row = vec![field("fence", now, lease), end().boxed()].prop_map(Value::Array);
            proptest::collection::vec(row, 2).prop_map(Value::Array).boxed()
        }
        "holders" => rows(vec![id.boxed(), count().boxed(), field("fence", now, lease), end().boxed()]).boxed(),
        "waiters" => rows(vec![id.boxed(), count().boxed(), field("ticket", now, lease), count().boxed()]).boxed(),
        "contacts" | "members" => {
            let any = proptest::collection::vec(any::<u8>(), 0..9).prop_map(Value::BulkString);
            proptest::collection::vec(any, 0..4).prop_map(Value::Array).boxed()
        }
        _ => count().boxed(),
    }
}

/// A reply of one of the scripts as the contract has it, and which script.
fn valid_reply() -> BoxedStrategy<(String, Value)> {
    let all: Vec<_> = manifest()
        .into_iter()
        .flat_map(|(name, replies)| replies.into_iter().map(move |reply| (name.clone(), reply)))
        .collect();
    (proptest::sample::select(all), 1_600_000_000_000..2_000_000_000_000_i64)
        .prop_flat_map(|((script, (word, names)), now)| {
            // What the operations above ask for.
            let lease = match (script.as_str(), word.as_str()) {
                ("semaphore/acquire", "granted") => Some(30_000),
                (_, "refreshed") => Some(1_000),
                _ => None,
            };
            let fields: Vec<_> = names.iter().map(|name| field(name, now, lease)).collect();
            let is_one = word.is_empty() && names.len() == 1;
            (Just(script), fields).prop_map(move |(script, fields)| match (is_one, word.is_empty()) {
                (true, _) => (script, fields[0].clone()),
                (_, true) => (script, Value::Array(fields)),
                _ => (script, reply(&word, fields)),
            })
        })
        .boxed()
}

/// Changes one thing about a reply, at some depth.
fn mutate(value: Value, at: &[usize], how: u8, other: &Value) -> Value {
    let Value::Array(mut fields) = value else {
        return match (how, value) {
            (0, Value::Int(number)) => Value::Int(number.wrapping_neg()),
            (1, Value::Int(number)) => text(&number.to_string()),
            (2, Value::BulkString(bytes)) => Value::SimpleString(String::from_utf8_lossy(&bytes).into_owned()),
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

proptest! {
    #![proptest_config(fuzz::cases(1_000))]

    #[test]
    fn any_reply_is_an_error_or_says_what_is_told(value in fuzz::value()) {
        check_all(&value)?;
    }

    #[test]
    fn a_reply_of_the_contract_is_told_as_it_is((script, value) in valid_reply()) {
        check_all(&value)?;
        for (name, operation) in OPERATIONS.iter().filter(|(name, _)| *name == script) {
            let told = run(*operation, &mut StandIn::answering(&value));
            prop_assert!(told.is_ok(), "{}: {:?}", name, told);
        }
    }

    #[test]
    fn a_reply_with_one_thing_changed_is_an_error_or_says_what_is_told(
        (_, value) in valid_reply(),
        at in proptest::collection::vec(0..16_usize, 1..4),
        how in 0..12_u8,
        other in fuzz::value(),
    ) {
        check_all(&mutate(value, &at, how, &other))?;
    }

    #[test]
    fn any_error_has_a_type(error in fuzz::server_error(), several in proptest::collection::vec(fuzz::value(), 0..4)) {
        for (_, operation) in OPERATIONS {
            let mut con = StandIn::answering(&error);
            con.several = Ok(several.clone());
            // A script that is not known is given to the server and asked again: the last of two replies counts.
            match (run(*operation, &mut con), several.last()) {
                (Ok(told), Some(last)) if several.len() == 2 => prop_assert_eq!(&told, last),
                (Ok(told), _) => prop_assert!(false, "{:?} after {:?}", told, error),
                (Err(error), _) => drop(error.to_string()),
            }
        }
    }
}

#[test]
fn an_error_of_the_connection_has_a_type() {
    let kinds = [
        ErrorKind::Io,
        ErrorKind::Parse,
        ErrorKind::AuthenticationFailed,
        ErrorKind::UnexpectedReturnType,
        ErrorKind::Client,
        ErrorKind::Extension,
    ];
    for kind in kinds {
        for (_, operation) in OPERATIONS {
            let mut con = StandIn { single: Err(RedisError::from((kind, "broken"))), several: Ok(Vec::new()) };
            assert!(run(*operation, &mut con).is_err());
        }
    }
}

/// What the fuzzing found, in short.
#[test]
fn what_is_almost_a_grant_is_none() {
    let now = 1_700_000_000_000_i64;
    let good = [2, 7, now + 30_000, now, 2, 5];
    let of = |numbers: &[i64]| reply("granted", numbers.iter().map(|n| Value::Int(*n)).collect());
    let (_, acquire) = OPERATIONS[0];
    assert!(run(acquire, &mut StandIn::answering(&of(&good))).is_ok());
    for (place, wrong) in [(0, 3), (0, 0), (1, 0), (2, now), (2, -1), (2, now + 30_001), (2, -2), (3, -1), (5, 1 << 32)]
    {
        let mut numbers = good;
        numbers[place] = wrong;
        let told = run(acquire, &mut StandIn::answering(&of(&numbers)));
        assert!(told.is_err(), "{numbers:?}");
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
