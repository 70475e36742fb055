//! Reads replies from bytes as they arrive. All connections use RESP2.
//!
//! `redis::Parser` clears 8 KiB for each read: two fifths of the client's instructions for a pair of calls.

use crate::value::{Refusal, Value};

/// What has arrived is not of the protocol of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReply;

/// The longest string that a server sends by default.
const LONGEST_STRING: usize = 512 << 20;

/// The longest line. An array or a string begins with a line.
const LONGEST_LINE: usize = 64 << 10;

/// How many arrays may be in each other.
const DEEPEST: usize = 64;

/// For how many elements an array reserves memory before they arrive.
const RESERVED: usize = 1_024;

/// Bytes that have arrived, and replies that have begun.
#[derive(Default)]
pub struct Replies {
    bytes: Vec<u8>,
    /// The first byte that is not read.
    start: usize,
    /// The arrays around the next value, each with the number of its elements.
    open: Vec<(Vec<Value>, usize)>,
}

impl Replies {
    /// These bytes have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete reply. An error: what has arrived is no RESP2, and nothing can be read after it.
    #[allow(
        clippy::should_implement_trait,
        reason = "an error ends the connection, and `None` does not end the replies"
    )]
    pub fn next(&mut self) -> Result<Option<Value>, NoReply> {
        while let Some((value, length)) = self.value()? {
            self.start += length;
            if let Some(reply) = value.and_then(|value| self.complete(value)) {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// The reply that ends with this value. `None`: an array around it is not complete.
    fn complete(&mut self, value: Value) -> Option<Value> {
        let Some((mut values, length)) = self.open.pop() else { return Some(value) };
        values.push(value);
        if values.len() < length {
            self.open.push((values, length));
            return None;
        }
        self.complete(Value::Array(values))
    }

    /// The next value and its length. No value: an array begins. `None`: it is not complete.
    fn value(&mut self) -> Result<Option<(Option<Value>, usize)>, NoReply> {
        let bytes = self.bytes.get(self.start..).unwrap_or_default();
        if bytes.first().is_some_and(|kind| !b"+-:$*".contains(kind)) {
            return Err(wrong()); // at once: a server with TLS may not end its line
        }
        let Some(end) = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
            return if bytes.len() < LONGEST_LINE { Ok(None) } else { Err(wrong()) };
        };
        let (line, rest) = bytes.split_at_checked(end + 1).ok_or_else(wrong)?;
        let Some(([kind, text @ ..], b"\r\n")) = line.split_last_chunk::<2>() else { return Err(wrong()) };
        let value = match kind {
            b'+' => Value::SimpleString(String::from_utf8(text.to_vec()).map_err(|_| wrong())?),
            b':' => Value::Int(number(text)?),
            b'-' => Value::Error(Refusal::read(&String::from_utf8_lossy(text))),
            b'$' => match length(text)? {
                None => Value::Nil,
                Some(length) if length > LONGEST_STRING => return Err(wrong()),
                Some(length) => {
                    let Some((string, after)) = rest.split_at_checked(length) else { return Ok(None) };
                    let Some(end_of_string) = after.first_chunk::<2>() else { return Ok(None) };
                    if end_of_string != b"\r\n" {
                        return Err(wrong());
                    }
                    return Ok(Some((Some(Value::BulkString(string.to_vec())), line.len() + length + 2)));
                }
            },
            b'*' => match length(text)? {
                None => Value::Nil,
                Some(0) => Value::Array(Vec::new()),
                Some(_) if self.open.len() == DEEPEST => return Err(wrong()),
                Some(length) => {
                    let begun = (None, line.len());
                    self.open.push((Vec::with_capacity(length.min(RESERVED)), length));
                    return Ok(Some(begun));
                }
            },
            _ => return Err(wrong()),
        };
        Ok(Some((Some(value), line.len())))
    }
}

/// The length of a string or an array. `None`: there is none.
fn length(text: &[u8]) -> Result<Option<usize>, NoReply> {
    match number(text)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| wrong()),
    }
}

fn number(text: &[u8]) -> Result<i64, NoReply> {
    let number = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
    number.and_then(|number| number.parse().ok()).ok_or_else(wrong)
}

fn wrong() -> NoReply {
    NoReply
}

/// The replies in these bytes, which arrive in pieces of this length.
pub fn read(bytes: &[u8], piece: usize) -> Result<Vec<Value>, NoReply> {
    let (mut replies, mut read) = (Replies::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        replies.push(piece);
        while let Some(reply) = replies.next()? {
            read.push(reply);
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn replies_are_read_however_they_are_cut() {
        let bytes =
            b"+OK\r\n:-7\r\n$3\r\na\r\n\r\n*2\r\n*0\r\n*2\r\n$-1\r\n:9223372036854775807\r\n*-1\r\n+PONG\r\n$0\r\n\r\n\
            :-9223372036854775808\r\n";
        let nested =
            Value::Array(vec![Value::Array(vec![]), Value::Array(vec![Value::Nil, Value::Int(i64::MAX)])]);
        let expected = [
            Value::SimpleString("OK".to_owned()),
            Value::Int(-7),
            text("a\r\n"),
            nested,
            Value::Nil,
            Value::SimpleString("PONG".to_owned()),
            text(""),
            Value::Int(i64::MIN),
        ];
        for piece in 1..=bytes.len() {
            assert_eq!(read(bytes, piece).unwrap(), expected, "in pieces of {piece} bytes");
        }
    }

    #[test]
    fn an_error_reply_is_a_value() {
        let read = read(b"*1\r\n-NOSCRIPT No matching script.\r\n", 64).unwrap();
        let [Value::Array(values)] = &read[..] else { panic!("{read:?}") };
        assert_eq!(values[..], [Value::Error(Refusal::read("NOSCRIPT No matching script."))]);
    }

    #[test]
    fn the_longest_string_is_waited_for() {
        assert_eq!(read(b"$536870912\r\n", 64), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_reply_is_an_error_and_takes_no_memory() {
        let deep = b"*1\r\n".repeat(DEEPEST + 1);
        let long = vec![b'+'; LONGEST_LINE];
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"\n",
            b":\r\n",
            b":-\r\n",
            b":1\n",
            b":1 \r\n",
            b":9223372036854775808\r\n",
            b"$-2\r\n",
            b"$536870913\r\n",
            b"$1\r\nab\r\n",
            b"*-2\r\n",
            b"\x15\x03\x01\x00\x02\x02\x46", // an alert of TLS
            b"%1\r\n",
            b"+\xff\r\n",
            &deep,
            &long,
        ] {
            let read = read(bytes, 64);
            assert!(read.is_err(), "{:?}: {read:?}", String::from_utf8_lossy(bytes));
        }
    }

    fn of_redis(value: redis::Value) -> Value {
        match value {
            redis::Value::Nil => Value::Nil,
            redis::Value::Int(number) => Value::Int(number),
            redis::Value::BulkString(bytes) => Value::BulkString(bytes),
            redis::Value::Array(values) => Value::Array(values.into_iter().map(of_redis).collect()),
            redis::Value::Okay => Value::SimpleString("OK".to_owned()),
            redis::Value::SimpleString(text) => Value::SimpleString(text),
            redis::Value::ServerError(error) => {
                let detail = error.details().map(|detail| format!(" {detail}")).unwrap_or_default();
                Value::Error(Refusal::read(&format!("{}{detail}", error.code())))
            }
            other => panic!("{other:?} is not of RESP2"),
        }
    }

    proptest! {
        /// The same values as `redis` reads, where it reads a value of RESP2.
        #[test]
        fn any_bytes_are_read_as_by_redis(bytes in proptest::collection::vec(prop_oneof![
            4 => proptest::sample::select(b"+-:$*\r\n0123".to_vec()),
            1 => any::<u8>(),
        ], 1..40)) {
            if let Ok(mut values) = read(&bytes, 7) && !values.is_empty() {
                // It refuses an error that is no UTF-8.
                if let Ok(value) = redis::parse_redis_value(&bytes) {
                    prop_assert_eq!(of_redis(value), values.remove(0));
                }
            }
        }
    }
}
