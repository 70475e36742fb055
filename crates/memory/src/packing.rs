//! What scripts use of the library `struct`: numbers as bytes, by a format of `<` or `>` (the order of bytes, `<` unless it is said),
//! `d` (a double), `I` (an unsigned number of 4 bytes) and `B` (a byte).

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

/// The table `struct`.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.set("pack", lua.create_function(pack)?)?;
    library.set("unpack", lua.create_function(unpack)?)?;
    Ok(library)
}

/// One number of a format, and whether its lowest byte comes first.
enum Item {
    Double(bool),
    Int(bool),
    Byte,
}

fn items(format: &[u8]) -> Result<Vec<Item>> {
    let mut lowest_first = true;
    let mut items = Vec::new();
    for letter in format {
        match letter {
            b'<' => lowest_first = true,
            b'>' => lowest_first = false,
            b'd' => items.push(Item::Double(lowest_first)),
            b'I' => items.push(Item::Int(lowest_first)),
            b'B' => items.push(Item::Byte),
            other => {
                let other = char::from(*other);
                return Err(mlua::Error::runtime(format!(
                    "format '{other}': a server in memory knows '<', '>', 'd', 'I' and 'B' of struct"
                )));
            }
        }
    }
    Ok(items)
}

/// `struct.pack(format, number...)`.
fn pack(lua: &Lua, (format, numbers): (LuaString, MultiValue)) -> Result<LuaString> {
    let mut bytes = Vec::new();
    let mut numbers = numbers.into_iter();
    for item in items(&format.as_bytes())? {
        let number = lua.coerce_number(numbers.next().unwrap_or(Value::Nil))?;
        let number = number.ok_or_else(|| mlua::Error::runtime("number expected"))?;
        match item {
            Item::Double(true) => bytes.extend(number.to_le_bytes()),
            Item::Double(false) => bytes.extend(number.to_be_bytes()),
            Item::Int(true) => bytes.extend((number as i64 as u32).to_le_bytes()),
            Item::Int(false) => bytes.extend((number as i64 as u32).to_be_bytes()),
            Item::Byte => bytes.push(number as i64 as u8),
        }
    }
    lua.create_string(bytes)
}

/// `struct.unpack(format, bytes)`: the numbers, and the place behind them, from 1. Nothing where there are too few bytes.
fn unpack(_: &Lua, (format, bytes): (LuaString, LuaString)) -> Result<MultiValue> {
    let bytes = bytes.as_bytes();
    let mut rest: &[u8] = &bytes;
    let mut values = Vec::new();
    for item in items(&format.as_bytes())? {
        let number = match item {
            Item::Double(lowest_first) => rest.split_first_chunk().map(|(number, behind)| {
                rest = behind;
                match lowest_first {
                    true => f64::from_le_bytes(*number),
                    false => f64::from_be_bytes(*number),
                }
            }),
            Item::Int(lowest_first) => rest.split_first_chunk().map(|(number, behind)| {
                rest = behind;
                f64::from(match lowest_first {
                    true => u32::from_le_bytes(*number),
                    false => u32::from_be_bytes(*number),
                })
            }),
            Item::Byte => rest.split_first().map(|(number, behind)| {
                rest = behind;
                f64::from(*number)
            }),
        };
        let Some(number) = number else {
            return Ok(MultiValue::new());
        };
        values.push(Value::Number(number));
    }
    let behind = bytes.len() - rest.len() + 1;
    values.push(Value::Number(behind as f64));
    Ok(MultiValue::from_vec(values))
}
