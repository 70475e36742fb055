//! Values of Lua and replies of Redis, converted into each other.

use crate::reply::{Bytes, Reply};
use crate::resp::{error_value, one_line};
use crate::sorted_set::number_text;
use mlua::{IntoLua, Lua, Result, Table, Value as LuaValue};
use redis::Value;

/// A table with one field.
pub(super) fn table(lua: &Lua, field: &str, value: impl IntoLua) -> Result<LuaValue> {
    let table = lua.create_table()?;
    table.raw_set(field, value)?;
    Ok(LuaValue::Table(table))
}

/// An argument of a command. `None` if it is neither text nor a number.
pub(super) fn to_word(value: &LuaValue) -> Option<Bytes> {
    match value {
        LuaValue::String(text) => Some(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Some(number_text(*number as f64).into_bytes()),
        LuaValue::Number(number) => Some(number_text(*number).into_bytes()),
        _ => None,
    }
}

/// The reply to a command as the script receives it.
pub(super) fn to_lua(lua: &Lua, reply: &Value) -> Result<LuaValue> {
    Ok(match reply {
        Value::Int(number) => LuaValue::Number(*number as f64),
        Value::BulkString(bytes) => LuaValue::String(lua.create_string(bytes)?),
        Value::Array(values) => {
            let table = lua.create_table_with_capacity(values.len(), 0)?;
            for value in values {
                table.raw_push(to_lua(lua, value)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Okay => table(lua, "ok", "OK")?,
        Value::SimpleString(text) => table(lua, "ok", text.as_str())?,
        _ => LuaValue::Boolean(false),
    })
}

/// The result of a script as the client receives it: a number without its fraction, an array up to its first
/// nil.
pub(super) fn to_reply(value: &LuaValue) -> Result<Reply> {
    Ok(Ok(match value {
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Value::Int(*number),
        LuaValue::Number(number) => Value::Int(truncated(*number)),
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Table(table) => return table_to_reply(table),
        _ => Value::Nil,
    }))
}

/// A number without its fraction. A number out of range becomes the smallest integer, as on x86.
fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

fn table_to_reply(table: &Table) -> Result<Reply> {
    if let LuaValue::String(text) = table.raw_get("err")? {
        return Ok(Err(text.to_string_lossy()));
    }
    if let LuaValue::String(text) = table.raw_get("ok")? {
        let status = one_line(&text.to_string_lossy());
        return Ok(Ok(match status.as_str() {
            "OK" => Value::Okay,
            _ => Value::SimpleString(status),
        }));
    }
    let mut values = Vec::new();
    loop {
        match table.raw_get(values.len() + 1)? {
            LuaValue::Nil => return Ok(Ok(Value::Array(values))),
            value => values.push(to_reply(&value)?.unwrap_or_else(|text| error_value(&text))),
        }
    }
}
