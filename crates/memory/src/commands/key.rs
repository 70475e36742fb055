//! Commands for strings, for keys of any type, and for the time.

use crate::reply::{Bytes, Reply, SYNTAX, bulk, int, integer, number, optional, wrong_arity};
use crate::store::Store;
use redis::Value;

pub(super) fn execute(store: &mut Store, command: &str, arguments: &[Bytes]) -> Reply {
    let ms = store.micros() / 1_000;
    Ok(match (command, arguments) {
        ("TIME", []) => {
            let parts = [store.micros() / 1_000_000, store.micros() % 1_000_000];
            Value::Array(parts.map(|part| bulk(part.to_string())).to_vec())
        }
        ("GET", [key]) => optional(store.text(key)?),
        ("SET", [key, value]) => {
            store.set_text(key, value.clone());
            Value::Okay
        }
        ("SET", _) => return Err(SYNTAX.to_owned()),
        ("DEL" | "UNLINK", keys) => number(keys.iter().filter(|key| store.remove(key)).count()),
        ("TYPE", [key]) => Value::SimpleString(store.type_name(key).to_owned()),
        ("PTTL", [key]) => expiry(store, key, |end| int(end) - int(ms)),
        ("PEXPIRETIME", [key]) => expiry(store, key, int),
        ("PERSIST", [key]) => number(store.persist(key)),
        ("PEXPIREAT", [key, at]) => {
            let at = u64::try_from(integer(at)?).unwrap_or(0);
            number(store.expire_at(key, at))
        }
        ("PEXPIREAT", [_, _, option, ..]) => {
            let option = option.split(|byte| *byte == 0).next().unwrap_or_default();
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Unsupported option {option}"));
        }
        _ => return Err(wrong_arity(command)),
    })
}

/// -2 if the key does not exist, -1 if it does not expire.
pub(super) fn expiry(store: &Store, key: &[u8], reply: impl FnOnce(u64) -> i64) -> Value {
    Value::Int(match store.expires_at(key) {
        None => -2,
        Some(None) => -1,
        Some(Some(end)) => reply(end),
    })
}
