//! The library `struct`, as far as scripts use it: numbers as bytes. In a format, `<` (the default) and `>`
//! choose the byte order, `d` is a double, `I` an unsigned integer of 4 bytes, and `B` a byte.

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

/// The table `struct`.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.set("pack", lua.create_function(pack)?)?;
    library.set("unpack", lua.create_function(unpack)?)?;
    Ok(library)
}

/// Of each number in a format: its width, whether it is a double, and whether it is little endian.
fn items(format: &[u8]) -> Result<Vec<(usize, bool, bool)>> {
    let mut little_endian = true;
    let mut items = Vec::new();
    for letter in format {
        let (width, is_double) = match letter {
            b'd' => (8, true),
            b'I' => (4, false),
            b'B' => (1, false),
            b'<' | b'>' => {
                little_endian = *letter == b'<';
                continue;
            }
            other => {
                let other = char::from(*other);
                return Err(mlua::Error::runtime(format!(
                    "format '{other}': the in-memory server has '<', '>', 'd', 'I' and 'B' of struct"
                )));
            }
        };
        items.push((width, is_double, little_endian));
    }
    Ok(items)
}

/// `struct.pack(format, number...)`.
fn pack(lua: &Lua, (format, numbers): (LuaString, MultiValue)) -> Result<LuaString> {
    let mut packed = Vec::new();
    let mut numbers = numbers.into_iter();
    for (width, is_double, little_endian) in items(&format.as_bytes())? {
        let number = lua.coerce_number(numbers.next().unwrap_or(Value::Nil))?;
        let number = number.ok_or_else(|| mlua::Error::runtime("number expected"))?;
        let bits = if is_double { number.to_bits() } else { number as i64 as u64 };
        let bytes = bits.to_le_bytes().into_iter().take(width);
        if little_endian { packed.extend(bytes) } else { packed.extend(bytes.rev()) }
    }
    lua.create_string(packed)
}

/// `struct.unpack(format, bytes)`: the numbers, and the index of the next byte, from 1. No value if there are
/// too few bytes.
fn unpack(_: &Lua, (format, packed): (LuaString, LuaString)) -> Result<MultiValue> {
    let packed = packed.as_bytes();
    let mut rest: &[u8] = &packed;
    let mut values = Vec::new();
    for (width, is_double, little_endian) in items(&format.as_bytes())? {
        let Some((bytes, tail)) = rest.split_at_checked(width) else {
            return Ok(MultiValue::new());
        };
        rest = tail;
        let append = |bits, byte: &u8| bits << 8 | u64::from(*byte);
        let bits =
            if little_endian { bytes.iter().rev().fold(0, append) } else { bytes.iter().fold(0, append) };
        values.push(Value::Number(if is_double { f64::from_bits(bits) } else { bits as f64 }));
    }
    let next = packed.len() - rest.len() + 1;
    values.push(Value::Number(next as f64));
    Ok(MultiValue::from_vec(values))
}
