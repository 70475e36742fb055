//! Commands for hashes.

use crate::reply::{Bytes, Reply, array, number, optional, wrong_arity};
use crate::store::Store;
use redis::Value;

pub(super) fn execute(store: &mut Store, command: &str, arguments: &[Bytes]) -> Reply {
    Ok(match (command, arguments) {
        ("HGET", [key, field]) => optional(store.hash(key)?.get(field)),
        ("HGETALL", [key]) => {
            let fields = store.hash(key)?.iter();
            array(fields.flat_map(|(field, value)| [field, value]))
        }
        ("HMGET", [key, fields @ ..]) => {
            let hash = store.hash(key)?;
            let values = fields.iter().map(|field| optional(hash.get(field)));
            Value::Array(values.collect())
        }
        ("HEXISTS", [key, field]) => number(store.hash(key)?.contains_key(field)),
        ("HLEN", [key]) => number(store.hash(key)?.len()),
        ("HSET", [key, pairs @ ..]) => {
            let (pairs, []) = pairs.as_chunks() else {
                return Err(wrong_arity(command));
            };
            number(store.change_hash(key, |hash| {
                let mut insert = |field: &Bytes, value: &Bytes| hash.insert(field.clone(), value.clone());
                let added = pairs.iter().filter(|[field, value]| insert(field, value).is_none());
                added.count()
            })?)
        }
        ("HDEL", [key, fields @ ..]) => number(store.change_hash(key, |hash| {
            let removed = fields.iter().filter(|field| hash.remove(*field).is_some());
            removed.count()
        })?),
        _ => return Err(wrong_arity(command)),
    })
}
