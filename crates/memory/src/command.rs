//! What commands there are: how many words each takes, what it does to memory, and which keys it touches.

use crate::store::Bytes;

/// What a command may do while memory is full, and inside a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    Reads,
    /// Writes, and is allowed when memory is full.
    Frees,
    /// Writes, and is refused when memory is full.
    Grows,
}

/// How the error begins for a command with too few words, or too many.
pub(crate) const WRONG_ARITY: &str = "ERR wrong number of arguments for";

/// That error.
pub(crate) fn wrong_arity(command: &str) -> String {
    format!("{WRONG_ARITY} '{}' command", command.to_lowercase())
}

/// What a command that scripts use does, if it has the words that it needs; `None` for any other command.
pub(crate) fn nature(command: &str, arguments: &[Bytes]) -> Option<Result<Nature, String>> {
    use Nature::{Frees, Grows, Reads};
    // Words with the command's own; below 0: so many or more.
    let (nature, words) = match command {
        "TIME" => (Reads, 1),
        "HLEN" | "HGETALL" | "ZCARD" | "LLEN" | "GET" | "TYPE" | "PTTL" | "PEXPIRETIME" => {
            (Reads, 2)
        }
        "HGET" | "HEXISTS" | "ZSCORE" => (Reads, 3),
        "HMGET" | "ZRANK" | "LPOS" => (Reads, -3),
        "ZCOUNT" | "LRANGE" => (Reads, 4),
        "ZRANGE" | "ZREVRANGE" | "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" | "ZRANGEBYLEX" => {
            (Reads, -4)
        }
        "PERSIST" => (Frees, 2),
        "UNLINK" | "DEL" => (Frees, -2),
        "HDEL" | "ZREM" | "PEXPIREAT" => (Frees, -3),
        "LREM" | "LTRIM" => (Frees, 4),
        "LPUSH" | "SET" => (Grows, -3),
        "HSET" | "ZADD" => (Grows, -4),
        _ => return None,
    };
    let given = arguments.len() + 1;
    let least = usize::from(i8::unsigned_abs(words));
    let fits = given == least || words < 0 && given > least;
    Some(if fits {
        Ok(nature)
    } else {
        Err(wrong_arity(command))
    })
}

/// The keys that a command touches, of its arguments.
pub(crate) fn keys_of<'a>(command: &str, arguments: &'a [Bytes]) -> &'a [Bytes] {
    match command {
        "TIME" => &[],
        "UNLINK" | "DEL" => arguments,
        _ => arguments.get(..1).unwrap_or_default(),
    }
}
