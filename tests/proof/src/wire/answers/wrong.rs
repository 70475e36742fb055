//! Replies that no script sends.

use super::fields::{FLAGS, MAY_BE_NEVER, SMALL, fields_of};
use crate::protocol::call::Call;
use crate::protocol::failure::CallError;
use crate::protocol::kind::FailureKind;
use crate::protocol::value::Value;
use std::fmt::Debug;

/// Checks that this reply is rejected; no script sends it.
#[track_caller]
pub(super) fn refuse<C: Call>(call: &C, reply: Value)
where
    C::Answer: Debug,
{
    match call.answer(reply.clone()) {
        Err(CallError::Unknown(failure)) if failure.kind() == FailureKind::UnexpectedReply => {}
        other => panic!("{reply:?} was read as {other:?}"),
    }
}

/// Invalid variants of this reply, each with one error.
pub(super) fn wrong_rows(fields: &[&str], reply: &Value) -> Vec<Value> {
    let Value::Array(values) = reply else {
        panic!("not a list: {reply:?}");
    };
    let longer = [values.as_slice(), &[Value::Int(0)]].concat();
    let mut wrong = vec![Value::Int(0), Value::Array(longer)];
    for (at, value) in values.iter().enumerate() {
        wrong.push(Value::Array(values[..at].to_vec()));
        wrong.extend(wrong_fields(fields[at], value).into_iter().map(|other| {
            let mut values = values.clone();
            values[at] = other;
            Value::Array(values)
        }));
    }
    wrong
}

pub(super) fn wrong_fields(field: &str, value: &Value) -> Vec<Value> {
    match value {
        Value::Array(_) if fields_of(field).is_empty() => {
            vec![Value::Int(0), Value::Array(vec![Value::Int(0)])]
        }
        Value::Array(rows) => {
            let row = rows.first().map_or(vec![], |row| wrong_rows(fields_of(field), row));
            let changed = row.into_iter().map(|row| Value::Array(vec![row]));
            changed.chain([Value::Int(0)]).collect()
        }
        Value::Int(_) => {
            let mut wrong = vec![text("1"), Value::Int(-2)];
            wrong.extend((!MAY_BE_NEVER.contains(&field)).then_some(Value::Int(-1)));
            wrong.extend(SMALL.split(' ').any(|small| small == field).then_some(Value::Int(1 << 32)));
            wrong.extend(FLAGS.contains(&field).then_some(Value::Int(2)));
            wrong
        }
        _ if field == "id" => vec![Value::Int(1)],
        _ => vec![text("other"), Value::Int(1)],
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}
