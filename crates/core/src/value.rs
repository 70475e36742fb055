//! Replies of a server.

use std::fmt;

/// A value of RESP2.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    Nil,
    Int(i64),
    BulkString(Vec<u8>),
    SimpleString(String),
    Array(Vec<Value>),
    Error(Refusal),
}

/// Strings as text, if they are text.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("nil"),
            Value::Int(number) => number.fmt(f),
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).fmt(f),
            Value::SimpleString(text) => text.fmt(f),
            Value::Array(values) => values.fmt(f),
            Value::Error(refusal) => refusal.fmt(f),
        }
    }
}

/// An error that a server, or a proxy before it, replied: a code, which is its first word, and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    code: String,
    detail: String,
}

impl Refusal {
    /// Splits the text of an error reply.
    pub fn read(text: &str) -> Refusal {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        Refusal { code: code.to_owned(), detail: detail.to_owned() }
    }

    pub fn code(&self) -> &str {
        &self.code
    }

    /// The text after the code.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " {}", self.detail) }
    }
}
