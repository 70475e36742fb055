//! Reads the reply of a script field by field, and classifies the errors of failed calls.

use super::lease::ServerTime;
use crate::failure::{CallError, Failure, Reason};
use crate::invalid::Invalid;
use crate::kind::FailureKind;
use crate::value::{Refusal, Value};
use std::fmt::Debug;
use std::time::Duration;

/// Classifies a failed call: the script refused an argument or the stored state, the server did not run it,
/// or no reply arrived.
pub fn error_of(failure: Failure) -> CallError {
    if let Some(refusal) = failure.refusal() {
        if refusal.code() == "LUAGATE" {
            let (what, why) = refusal.detail().split_once(": ").unwrap_or(("call", refusal.detail()));
            if what == "layout" {
                // The arguments are valid, but the keys contain another layout.
                let reason = Reason::OtherVersion(Refusal::read(&format!("{} {why}", refusal.code())));
                return CallError::Failed(Failure::because(FailureKind::WrongVersion, reason));
            }
            return CallError::Invalid(Invalid::new(what, why));
        }
        if refusal.code() == "CROSSSLOT" {
            // A cluster refuses such keys before the script runs.
            let why = "no hash tag, or different ones. Accepted: keys with one hash tag";
            return CallError::Invalid(Invalid::new("keys", why));
        }
    }
    if failure.may_have_run() { CallError::Unknown(failure) } else { CallError::Failed(failure) }
}

/// Reads a complete reply of a script. A reply with an extra field breaks the contract and is an error. Never
/// panics, for any reply.
pub fn read<T>(
    value: Value,
    fields: impl FnOnce(&mut Reply) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let mut reply = match value {
        Value::Array(fields) => Reply { shown: String::new(), fields: fields.into_iter() },
        other => return Err(unexpected(&other)),
    };
    let answer = fields(&mut reply)?;
    match reply.fields.next() {
        None => Ok(answer),
        Some(more) => Err(unexpected(&(&reply.shown, more))),
    }
}

/// The fields of a reply, read in order.
pub struct Reply {
    shown: String,
    fields: std::vec::IntoIter<Value>,
}

impl Reply {
    /// A reply that is a single field, not an array.
    pub fn plain(value: Value) -> Reply {
        Reply { shown: String::new(), fields: vec![value].into_iter() }
    }

    pub fn word(&mut self) -> Result<&str, CallError> {
        match self.fields.next() {
            Some(Value::BulkString(bytes)) => {
                self.shown = String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
                Ok(&self.shown)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn integer(&mut self) -> Result<i64, CallError> {
        match self.fields.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(unexpected(&(&self.shown, other))),
        }
    }

    /// A number that fits into the type `T`.
    pub fn number<T: TryFrom<i64>>(&mut self) -> Result<T, CallError> {
        let number = self.integer()?;
        T::try_from(number).map_err(|_| unexpected(&(&self.shown, number)))
    }

    /// A number; -1 means never.
    pub fn number_or_never(&mut self) -> Result<Option<u64>, CallError> {
        match self.integer()? {
            -1 => Ok(None),
            number => u64::try_from(number).map(Some).map_err(|_| unexpected(&(&self.shown, number))),
        }
    }

    /// 0 or 1 as `bool`.
    pub fn flag(&mut self) -> Result<bool, CallError> {
        match self.integer()? {
            0 => Ok(false),
            1 => Ok(true),
            number => Err(unexpected(&(&self.shown, number))),
        }
    }

    pub fn list(&mut self) -> Result<Vec<Vec<u8>>, CallError> {
        let bytes = |value| match value {
            Value::BulkString(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        };
        match self.fields.next() {
            Some(Value::Array(values)) => values.into_iter().map(bytes).collect(),
            other => Err(unexpected(&other)),
        }
    }

    /// A list of arrays. `row` reads each of them.
    pub fn rows<T>(&mut self, row: impl Fn(&mut Reply) -> Result<T, CallError>) -> Result<Vec<T>, CallError> {
        match self.fields.next() {
            Some(Value::Array(rows)) => rows.into_iter().map(|value| read(value, &row)).collect(),
            other => Err(unexpected(&other)),
        }
    }
}

/// Unexpected reply; the scripts never return this.
pub fn unexpected(what: &dyn Debug) -> CallError {
    let mut text = format!("{what:?}");
    if let Some((end, _)) = text.char_indices().nth(200) {
        text.truncate(end);
    }
    CallError::Unknown(Failure::because(FailureKind::UnexpectedReply, Reason::Unexpected(text)))
}

/// The time from `now` to `then`, both on the server's clock.
pub fn between(now: ServerTime, then: ServerTime) -> Duration {
    Duration::from_millis(then.saturating_sub(now))
}
