//! Commands about keys of any type, which no script of luagate's uses: with them tests look at what there is.

use crate::store::{Bytes, Reply, Store};
use redis::Value;

/// `None` for a command that is not one of these.
pub(crate) fn execute(store: &mut Store, command: &str, arguments: &[Bytes]) -> Option<Reply> {
    let reply = match (command, arguments) {
        ("EXISTS", [_, ..]) => {
            let there = arguments.iter().filter(|key| is_there(store, key));
            number(there.count())
        }
        ("TTL", [key]) => match store.expires_at(key) {
            None => Value::Int(-2),
            Some(None) => Value::Int(-1),
            Some(Some(end)) => {
                let left = end.saturating_sub(store.micros() / 1_000);
                Value::Int(i64::try_from(left.div_ceil(1_000)).unwrap_or(i64::MAX))
            }
        },
        ("KEYS", [pattern]) => names(store, pattern),
        // All of them in one reply: the next cursor says that there are no more.
        ("SCAN", [_, options @ ..]) => {
            let mut pairs = options.chunks_exact(2);
            let pattern = pairs.find_map(|pair| match pair {
                [word, pattern] if word.eq_ignore_ascii_case(b"MATCH") => Some(pattern.as_slice()),
                _ => None,
            });
            let end = Value::BulkString(b"0".to_vec());
            Value::Array(vec![end, names(store, pattern.unwrap_or(b"*"))])
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

fn is_there(store: &Store, key: &[u8]) -> bool {
    store.expires_at(key).is_some()
}

fn number(count: usize) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn names(store: &Store, pattern: &[u8]) -> Value {
    let names = store.key_names().filter(|name| fits(pattern, name));
    Value::Array(names.map(|name| Value::BulkString(name.to_vec())).collect())
}

/// Whether a name fits a pattern of `*`, `?`, and any byte after a `\`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "abcd", false),
            ("a*c*", "abcd", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("abc", "ab", false),
        ] {
            let found = fits(pattern.as_bytes(), name.as_bytes());
            assert_eq!(found, expected, "{pattern} {name}");
        }
    }
}
