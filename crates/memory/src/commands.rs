//! The commands that scripts call: their table, and which module executes them.

mod hash;
mod key;
pub(crate) mod keyspace;
mod list;
mod range;
mod sorted_set;

use crate::reply::{Bytes, Reply, wrong_arity};
use crate::store::Store;

/// Whether a command writes, and whether it needs memory for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    /// Writes, and is allowed when memory is full.
    Write,
    /// Writes, and is denied when memory is full: `denyoom`, as Redis calls it.
    Grow,
}

/// The effect of a command, or the error for a wrong number of arguments. `None` if the command is not
/// implemented.
pub(crate) fn effect(command: &str, arguments: &[Bytes]) -> Option<Result<Effect, String>> {
    use Effect::{Grow, Read, Write};
    // The arity as Redis counts it: with the name of the command; negative for a minimum.
    let (effect, arity): (_, isize) = match command {
        "TIME" => (Read, 1),
        "HLEN" | "HGETALL" | "ZCARD" | "LLEN" | "GET" | "TYPE" | "PTTL" | "PEXPIRETIME" => (Read, 2),
        "PUBSUB" => (Read, -2),
        "HGET" | "HEXISTS" | "ZSCORE" | "PUBLISH" => (Read, 3),
        "HMGET" | "ZRANK" | "LPOS" => (Read, -3),
        "ZCOUNT" | "LRANGE" => (Read, 4),
        "ZRANGE" | "ZREVRANGE" | "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" | "ZRANGEBYLEX" => (Read, -4),
        "PERSIST" => (Write, 2),
        "UNLINK" | "DEL" => (Write, -2),
        "HDEL" | "ZREM" | "PEXPIREAT" => (Write, -3),
        "LREM" | "LTRIM" => (Write, 4),
        "LPUSH" | "SET" => (Grow, -3),
        "HSET" | "ZADD" => (Grow, -4),
        _ => return None,
    };
    let (given, required) = (arguments.len() + 1, arity.unsigned_abs());
    let fits = given == required || arity < 0 && given > required;
    Some(fits.then_some(effect).ok_or_else(|| wrong_arity(command)))
}

/// Those arguments of a command that are keys.
pub(crate) fn keys_of<'a>(command: &str, arguments: &'a [Bytes]) -> &'a [Bytes] {
    match command {
        "TIME" | "PUBLISH" | "PUBSUB" => &[],
        "UNLINK" | "DEL" => arguments,
        _ => arguments.get(..1).unwrap_or_default(),
    }
}

/// Executes a command of which [`effect`] is known. The first letter of its name says for which type of value
/// it is.
pub(crate) fn execute(store: &mut Store, command: &str, arguments: &[Bytes]) -> Reply {
    let execute = match command.as_bytes() {
        [b'H', ..] => hash::execute,
        [b'L', ..] => list::execute,
        [b'Z', ..] => sorted_set::execute,
        _ => key::execute,
    };
    execute(store, command, arguments)
}
