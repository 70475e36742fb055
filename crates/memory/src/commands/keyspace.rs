//! Commands that no script of luagate calls. Tests use them to inspect the keys.

use super::key::expiry;
use crate::reply::{Bytes, Reply, array, bulk, int, number};
use crate::store::Store;
use redis::Value;

/// `None` if the command is not one of these.
pub(crate) fn execute(store: &mut Store, command: &str, arguments: &[Bytes]) -> Option<Reply> {
    let reply = match (command, arguments) {
        ("EXISTS", [_, ..]) => {
            let existing = arguments.iter().filter(|key| store.expires_at(key).is_some());
            number(existing.count())
        }
        ("TTL", [key]) => {
            expiry(store, key, |end| int(end.saturating_sub(store.micros() / 1_000).div_ceil(1_000)))
        }
        ("KEYS", [pattern]) => names(store, pattern),
        // All names in one reply: the next cursor is 0, so there are no more.
        ("SCAN", [_, options @ ..]) => {
            let mut options = options.as_chunks().0.iter();
            let pattern = options.find(|[option, _]| option.eq_ignore_ascii_case(b"MATCH"));
            let pattern = pattern.map_or(b"*".as_slice(), |[_, pattern]| pattern);
            Value::Array(vec![bulk("0"), names(store, pattern)])
        }
        ("DBSIZE", []) => number(store.key_names().count()),
        ("FLUSHALL" | "FLUSHDB", _) => {
            let now = store.micros();
            *store = Store::default();
            store.set_micros(now);
            Value::Okay
        }
        _ => return None,
    };
    Some(Ok(reply))
}

fn names(store: &Store, pattern: &[u8]) -> Value {
    array(store.key_names().filter(|name| fits(pattern, name)))
}

/// Whether a name matches a pattern. `*` and `?` are wildcards; a `\` escapes the next byte.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], name) => name.is_empty(),
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|skip| {
            let left = name.get(skip..).unwrap_or_default();
            fits(rest, left)
        }),
        ([b'?', rest @ ..], [_, left @ ..]) => fits(rest, left),
        ([b'\\', byte, rest @ ..] | [byte, rest @ ..], [first, left @ ..]) => {
            byte == first && fits(rest, left)
        }
        (_, []) => false,
    }
}
