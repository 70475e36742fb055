//! Every operation of the scripts, each with its result converted back into a reply.

use super::{StandIn, reply, text};

use luagate::errors::CallError;
use luagate::scripts::semaphore::{
    self, AcquireAnswer, Ask, AskOne, Grant, LookupAnswer, ReleaseAnswer, ResizeAnswer,
    TryAcquireSeveralAnswer, Usage,
};
use luagate::scripts::{Keys, LatchKeys, autocomplete, latch};
use redis::Value;

fn int(number: impl TryInto<i64>) -> Value {
    Value::Int(number.try_into().unwrap_or_else(|_| panic!("no reply contains such a number")))
}

fn or_never(number: Option<u64>) -> Value {
    number.map_or(Value::Int(-1), int)
}

/// A grant as in a reply. Asserts that the grant is possible.
fn grant(grant: &Grant) -> Vec<Value> {
    assert!(grant.permits > 0 && grant.fence > 0, "{grant:?}");
    assert!(grant.expires_at.is_none_or(|end| end > grant.now), "{grant:?}");
    let Grant { permits, fence, expires_at, now } = *grant;
    vec![int(permits), int(fence), or_never(expires_at), int(now)]
}

fn usage(usage: &Usage) -> Vec<Value> {
    vec![int(usage.in_use), int(usage.limit)]
}

fn grants(grants: &[(Grant, Usage)]) -> Vec<Value> {
    let [(Grant { now, .. }, _), _] = *grants else { panic!("{grants:?}") };
    let rows = grants.iter().map(|(one, used)| {
        assert_eq!(one.now, now);
        Value::Array([grant(one)[..3].to_vec(), usage(used)].concat())
    });
    vec![int(now), Value::Array(rows.collect())]
}

fn list(items: Vec<Vec<u8>>) -> Value {
    Value::Array(items.into_iter().map(Value::BulkString).collect())
}

/// Runs an operation, and returns its result as the reply with exactly that content.
pub type Operation = fn(&mut StandIn, &Keys, &LatchKeys) -> Result<Value, CallError>;

pub const OPERATIONS: &[(&str, Operation)] = &[
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
            ReleaseAnswer::Released { left, usage: u } => {
                reply("released", [vec![int(left)], usage(&u)].concat())
            }
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
            ResizeAnswer::Resized { old, new, in_use } => {
                reply("resized", vec![int(old), int(new), int(in_use)])
            }
            ResizeAnswer::Unchanged { current, in_use } => {
                reply("unchanged", vec![int(current), int(in_use)])
            }
        })
    }),
    ("semaphore/inspect", |con, keys, _| {
        let state = semaphore::inspect(con, keys, 0, 10)?;
        let holders = state.holders.iter().map(|row| {
            let cooling_down = int(u8::from(row.cooling_down));
            let end = or_never(row.expires_at);
            Value::Array(vec![text(&row.id), int(row.permits), int(row.fence), end, cooling_down])
        });
        let waiters = state.waiters.iter().map(|row| {
            Value::Array(vec![text(&row.id), int(row.permits), int(row.ticket), int(row.patience_until)])
        });
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
    ("semaphore/try_acquire_several", |con, keys, _| {
        Ok(match semaphore::try_acquire_several(con, "id", &[AskOne::mutex(keys); 2])? {
            TryAcquireSeveralAnswer::Granted(granted) => reply("granted", grants(&granted)),
            TryAcquireSeveralAnswer::Held(held) => reply("held", grants(&held)),
            TryAcquireSeveralAnswer::Denied { index, next_expiry, now, lines, still_held } => {
                assert!(index < 2 && lines.len() == 2);
                let rows = lines.iter().map(|line| [usage(&line.usage), vec![int(line.waiting)]].concat());
                let rows = Value::Array(rows.map(Value::Array).collect());
                reply("denied", vec![int(index + 1), or_never(next_expiry), int(now), rows, int(still_held)])
            }
            TryAcquireSeveralAnswer::AboveLimit { index, limit, now, still_held } => {
                assert!(index < 2);
                reply("above_limit", vec![int(index + 1), int(limit), int(now), int(still_held)])
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
            latch::CountAnswer::Closed { left, count, now } => {
                reply("closed", vec![int(left), int(count), int(now)])
            }
        })
    }),
    ("autocomplete/recent_add", |con, _, _| Ok(int(autocomplete::recent_add(con, "key", "a", 1)?))),
    ("autocomplete/recent_remove", |con, _, _| {
        Ok(int(u8::from(autocomplete::recent_remove(con, "key", "a")?)))
    }),
    ("autocomplete/recent_match", |con, _, _| Ok(list(autocomplete::recent_match(con, "key", "a", 1)?))),
    ("autocomplete/prefix_add", |con, _, _| Ok(int(autocomplete::prefix_add(con, "key", &["a"])?))),
    ("autocomplete/prefix_remove", |con, _, _| Ok(int(autocomplete::prefix_remove(con, "key", &["a"])?))),
    ("autocomplete/prefix_match", |con, _, _| Ok(list(autocomplete::prefix_match(con, "key", "a", 1)?))),
    ("semaphore/refresh", |con, keys, _| {
        Ok(match semaphore::refresh(con, keys, "id", 1_000, None)? {
            Some(refreshed) => reply("refreshed", grant(&refreshed)),
            // The only field that the library does not pass on.
            None => match con.single.as_ref().ok().or(con.several.iter().flatten().last()) {
                Some(Value::Array(fields)) if matches!(fields[..], [_, Value::Int(0..)]) => {
                    reply("lost", fields[1..].to_vec())
                }
                other => panic!("reported as lost after {other:?}"),
            },
        })
    }),
];

fn acquired(answer: AcquireAnswer, asked: Option<u32>) -> Result<Value, CallError> {
    Ok(match answer {
        AcquireAnswer::Granted(granted, u) => {
            assert!(asked.is_none_or(|asked| asked == granted.permits), "{granted:?}");
            reply("granted", [grant(&granted), usage(&u)].concat())
        }
        AcquireAnswer::Held(held, u) => reply("held", [grant(&held), usage(&u)].concat()),
        AcquireAnswer::Queued { ticket, position, retry_after, usage: u, now } => {
            let fields = [vec![int(ticket), int(position), int(retry_after)], usage(&u), vec![int(now)]];
            reply("queued", fields.concat())
        }
        AcquireAnswer::Denied { next_expiry, usage: u, waiting, now } => {
            let fields = [vec![or_never(next_expiry)], usage(&u), vec![int(waiting), int(now)]];
            reply("denied", fields.concat())
        }
        AcquireAnswer::AboveLimit { limit, now } => reply("above_limit", vec![int(limit), int(now)]),
    })
}

pub fn run(operation: Operation, con: &mut StandIn) -> Result<Value, CallError> {
    let keys = Keys::semaphore("luagate", "{fuzz}:a").unwrap();
    let latch_keys = LatchKeys::new("luagate", "fuzz").unwrap();
    operation(con, &keys, &latch_keys)
}
