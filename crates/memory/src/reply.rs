//! Replies, and the numbers and error texts that several commands share.

use redis::Value;

pub(crate) type Bytes = Vec<u8>;

/// The reply to a command. The error is the text of an error reply.
pub(crate) type Reply = Result<Value, String>;

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The error for a command with too few or too many arguments.
pub(crate) fn wrong_arity(command: &str) -> String {
    let command = command.to_lowercase();
    format!("ERR wrong number of arguments for '{command}' command")
}

/// The error for a command that is not implemented.
pub(crate) fn unknown(command: &str) -> String {
    format!(
        "ERR unknown command '{command}': the in-memory server has the commands of luagate's scripts, and few others"
    )
}

pub(crate) fn bulk(bytes: impl Into<Bytes>) -> Value {
    Value::BulkString(bytes.into())
}

/// Nil for `None`.
pub(crate) fn optional(bytes: Option<&Bytes>) -> Value {
    bytes.map_or(Value::Nil, |bytes| bulk(bytes.clone()))
}

pub(crate) fn number(number: impl TryInto<i64>) -> Value {
    Value::Int(int(number))
}

pub(crate) fn array(elements: impl Iterator<Item: AsRef<[u8]>>) -> Value {
    Value::Array(elements.map(|element| bulk(element.as_ref())).collect())
}

/// An integer in the form that Redis accepts: no plus sign, no leading zero.
pub(crate) fn integer(text: &[u8]) -> Result<i64, String> {
    let parsed = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    let exact = parsed.filter(|number: &i64| number.to_string().as_bytes() == text);
    exact.ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}

pub(crate) fn int(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// 0 for a negative number.
pub(crate) fn unsigned(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
