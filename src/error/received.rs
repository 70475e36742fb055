//! Errors and values of `redis`, as those of the core, and back.

use luagate_core::failure::{Failure, Reason};
use luagate_core::kind::FailureKind::{self, *};
use luagate_core::meaning::Meaning;
use luagate_core::value::{Refusal, Value};
use redis::{ErrorKind, RedisError, ServerError};
use std::error::Error;
use std::sync::Arc;

/// The failure of a call that ended with this error.
pub(crate) fn received(error: RedisError) -> Failure {
    if let Some(code) = error.code() {
        let detail = error.detail().map(|detail| format!(" {detail}")).unwrap_or_default();
        return Failure::refused(Refusal::read(&format!("{code}{detail}")));
    }
    Failure::caused_by(without_reply(&error), error.to_string(), error)
}

/// The meaning of an error that the server did not reply.
fn without_reply(error: &RedisError) -> Meaning {
    let (kind, may_have_run): (FailureKind, bool) = match error.kind() {
        ErrorKind::Io if error.is_timeout() => (TimedOut, true),
        ErrorKind::Io if error.is_connection_refusal() => (Unreachable, false),
        ErrorKind::Io => (Disconnected, true),
        ErrorKind::AuthenticationFailed => (Authentication, false),
        ErrorKind::Parse => (NotRedis, true),
        ErrorKind::UnexpectedReturnType => (UnexpectedReply, true),
        _ => (Other, false),
    };
    Meaning { kind, may_have_run }
}

/// The error of `redis` that led to a failure, if there is one.
pub(super) fn source_of(reason: &Reason) -> Option<Arc<dyn Error + Send + Sync>> {
    match reason {
        Reason::Refused(refusal) | Reason::OtherVersion(refusal) => {
            Some(Arc::new(RedisError::from(error_of(refusal)?)))
        }
        Reason::Reported { source, .. } => source.clone(),
        _ => None,
    }
}

fn error_of(refusal: &Refusal) -> Option<ServerError> {
    let line = format!("-{refusal}\r\n").replace(['\r', '\n'], " ");
    match redis::parse_redis_value(format!("{}\r\n", line.trim_end()).as_bytes()) {
        Ok(redis::Value::ServerError(error)) => Some(error),
        _ => None,
    }
}

/// A value that a client of the caller received.
pub(crate) fn value(value: redis::Value) -> Value {
    match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(bytes) => Value::BulkString(bytes),
        redis::Value::Array(values) => Value::Array(values.into_iter().map(self::value).collect()),
        redis::Value::SimpleString(text) => Value::SimpleString(text),
        redis::Value::Okay => Value::SimpleString("OK".to_owned()),
        redis::Value::ServerError(error) => {
            let detail = error.details().map(|detail| format!(" {detail}")).unwrap_or_default();
            Value::Error(Refusal::read(&format!("{}{detail}", error.code())))
        }
        other => Value::SimpleString(format!("{other:?}")), // no script replies it
    }
}

/// The same value for a caller that uses the types of `redis`.
pub(crate) fn to_redis(value: Value) -> redis::Value {
    match value {
        Value::Nil => redis::Value::Nil,
        Value::Int(number) => redis::Value::Int(number),
        Value::BulkString(bytes) => redis::Value::BulkString(bytes),
        Value::Array(values) => redis::Value::Array(values.into_iter().map(to_redis).collect()),
        Value::SimpleString(text) if text == "OK" => redis::Value::Okay,
        Value::SimpleString(text) => redis::Value::SimpleString(text),
        Value::Error(refusal) => error_of(&refusal).map_or(redis::Value::Nil, redis::Value::ServerError),
    }
}
