//! Lua 5.1 as Redis has it: scripts that call commands of a store.

use super::store::{Bytes, Nature, Reply, Store, keys_of, nature};
use crate::sync::lock;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue};
use redis::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// What scripts may not do by accident: in Redis a script has no globals of its own.
const GUARD: &str = "
  setmetatable(_G, {
    __index = function(_, name) error('global variable ' .. tostring(name) .. ' does not exist', 2) end,
    __newindex = function(_, name) error('a script sets the global variable ' .. tostring(name), 2) end,
  })";

/// A script that runs for so long does not end.
const MOST_INSTRUCTIONS: u32 = 20_000_000;

/// What a script works on, while it runs.
#[derive(Default)]
pub(super) struct Work {
    pub(super) store: Store,
    /// How many listen to each channel.
    pub(super) listeners: BTreeMap<Bytes, usize>,
    /// What was published, in order: channel and message.
    pub(super) published: Vec<(Bytes, Bytes)>,
    /// Whether memory is full.
    pub(super) full: bool,
    /// How many commands the script called.
    pub(super) calls: u64,
    wrote: bool,
    declared: Vec<Bytes>,
}

impl Work {
    /// A command that a script calls.
    fn call(&mut self, command: &str, arguments: &[Bytes]) -> Reply {
        self.calls += 1;
        match command {
            "PUBLISH" | "PUBSUB" => return self.messaging(command, arguments),
            _ => {}
        }
        let Some(nature) = nature(command) else {
            return Err(unknown(command));
        };
        for key in keys_of(command, arguments) {
            if !self.declared.contains(key) {
                let key = String::from_utf8_lossy(key);
                return Err(format!(
                    "ERR {command} of the key {key}, which is not in KEYS"
                ));
            }
        }
        if nature == Nature::Grows && self.full && !self.wrote {
            return Err("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
        }
        self.wrote |= nature != Nature::Reads;
        self.store.execute(command, arguments)
    }

    /// Publishing, and counting who listens.
    pub(super) fn messaging(&mut self, command: &str, arguments: &[Bytes]) -> Reply {
        let heard = |channel| self.listeners.get(channel).copied().unwrap_or(0);
        match (command, arguments) {
            ("PUBLISH", [channel, message]) => {
                let heard = heard(channel);
                self.published.push((channel.clone(), message.clone()));
                Ok(Value::Int(number(heard)))
            }
            ("PUBSUB", [what, channels @ ..]) if what.eq_ignore_ascii_case(b"NUMSUB") => {
                let counts = channels.iter().flat_map(|channel| {
                    let count = Value::Int(number(heard(channel)));
                    [Value::BulkString(channel.clone()), count]
                });
                Ok(Value::Array(counts.collect()))
            }
            _ => Err(unknown(command)),
        }
    }
}

/// The reply to a command that is not one of those that the scripts use.
pub(super) fn unknown(command: &str) -> String {
    format!(
        "ERR unknown command '{command}': a server in memory knows what luagate's scripts use, and little more"
    )
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An error reply that went through Lua.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// A Lua with the scripts that it was given.
pub(super) struct Interpreter {
    lua: Lua,
    scripts: HashMap<String, Function>,
    pub(super) work: Arc<Mutex<Work>>,
}

impl Interpreter {
    pub(super) fn new() -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let work = Arc::<Mutex<Work>>::default();
        let redis = lua.create_table()?;
        redis.set("call", command(&lua, work.clone(), true)?)?;
        redis.set("pcall", command(&lua, work.clone(), false)?)?;
        let reply = |field: &'static str| {
            lua.create_function(move |lua, text: mlua::LuaString| {
                let reply = lua.create_table()?;
                reply.raw_set(field, text)?;
                Ok(reply)
            })
        };
        redis.set("error_reply", reply("err")?)?;
        redis.set("status_reply", reply("ok")?)?;
        let sha1hex = |_: &Lua, text: mlua::LuaString| Ok(sha1(&text.as_bytes()));
        redis.set("sha1hex", lua.create_function(sha1hex)?)?;
        let globals = lua.globals();
        globals.set("redis", redis)?;
        globals.set("KEYS", LuaValue::Nil)?;
        lua.load(GUARD).exec()?;
        let triggers = HookTriggers::new().every_nth_instruction(MOST_INSTRUCTIONS);
        let too_long =
            || mlua::Error::external(Raised("ERR the script runs for too long".to_owned()));
        lua.set_hook(triggers, move |_, _| Err(too_long()))?;
        Ok(Interpreter {
            lua,
            scripts: HashMap::new(),
            work,
        })
    }

    /// Makes a script known; returns its SHA-1.
    pub(super) fn load(&mut self, text: &[u8]) -> Result<String, String> {
        let name = sha1(text);
        if !self.scripts.contains_key(&name) {
            let script = self.lua.load(text).set_name("@user_script");
            let script = script
                .into_function()
                .map_err(|error| format!("ERR Error compiling script: {error}"))?;
            self.scripts.insert(name.clone(), script);
        }
        Ok(name)
    }

    pub(super) fn forget_all(&mut self) {
        self.scripts.clear();
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.scripts.contains_key(name)
    }

    /// Runs a script that was loaded.
    pub(super) fn run(&self, name: &str, keys: &[Bytes], arguments: &[Bytes]) -> Reply {
        let Some(script) = self.scripts.get(name) else {
            return Err("NOSCRIPT No matching script.".to_owned());
        };
        let mut work = lock(&self.work);
        (work.wrote, work.calls) = (false, 0);
        work.declared = keys.to_vec();
        drop(work);
        self.run_function(script, keys, arguments)
            .unwrap_or_else(|error| Err(error_text(&error)))
    }

    fn run_function(
        &self,
        script: &Function,
        keys: &[Bytes],
        arguments: &[Bytes],
    ) -> mlua::Result<Reply> {
        let list = |texts: &[Bytes]| {
            let texts = texts.iter().map(|text| self.lua.create_string(text));
            self.lua
                .create_sequence_from(texts.collect::<mlua::Result<Vec<_>>>()?)
        };
        let globals = self.lua.globals();
        globals.raw_set("KEYS", list(keys)?)?;
        globals.raw_set("ARGV", list(arguments)?)?;
        let result: LuaValue = script.call(())?;
        to_reply(&result)
    }
}

/// The name of a script.
pub(super) fn sha1(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

/// `redis.call`, which raises what fails, or `redis.pcall`, which returns it.
fn command(lua: &Lua, work: Arc<Mutex<Work>>, raises: bool) -> mlua::Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let mut words = Vec::with_capacity(values.len());
        for value in &values {
            words.push(to_word(value)?);
        }
        let reply = match words.split_first() {
            Some((command, arguments)) => {
                let command = String::from_utf8_lossy(command).to_ascii_uppercase();
                lock(&work).call(&command, arguments)
            }
            None => Err(
                "ERR Please specify at least one argument for this redis.call() call".to_owned(),
            ),
        };
        match reply {
            Ok(reply) => to_lua(lua, &reply),
            Err(text) if raises => Err(mlua::Error::external(Raised(text))),
            Err(text) => {
                let table = lua.create_table()?;
                table.raw_set("err", text)?;
                Ok(LuaValue::Table(table))
            }
        }
    })
}

/// An argument of a command: a number has 17 digits there.
fn to_word(value: &LuaValue) -> mlua::Result<Bytes> {
    match value {
        LuaValue::String(text) => Ok(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Ok(number.to_string().into_bytes()),
        LuaValue::Number(number) => Ok(match *number {
            f64::INFINITY => b"inf".to_vec(),
            f64::NEG_INFINITY => b"-inf".to_vec(),
            number => number.to_string().into_bytes(),
        }),
        _ => {
            let text = "ERR Lua redis lib command arguments must be strings or integers";
            Err(mlua::Error::external(Raised(text.to_owned())))
        }
    }
}

/// A reply as a script sees it.
fn to_lua(lua: &Lua, reply: &Value) -> mlua::Result<LuaValue> {
    Ok(match reply {
        Value::Int(number) => LuaValue::Number(*number as f64),
        Value::BulkString(bytes) => LuaValue::String(lua.create_string(bytes)?),
        Value::Array(values) => {
            let table = lua.create_table_with_capacity(values.len(), 0)?;
            for (place, value) in values.iter().enumerate() {
                table.raw_set(place + 1, to_lua(lua, value)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Okay => {
            let table = lua.create_table()?;
            table.raw_set("ok", "OK")?;
            LuaValue::Table(table)
        }
        _ => LuaValue::Boolean(false),
    })
}

/// What a script returns, as a client sees it: numbers are cut to integers, an array ends at its first nil.
fn to_reply(value: &LuaValue) -> mlua::Result<Reply> {
    Ok(Ok(match value {
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Value::Int(*number),
        LuaValue::Number(number) => Value::Int(*number as i64),
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Table(table) => return table_to_reply(table),
        _ => Value::Nil,
    }))
}

fn table_to_reply(table: &Table) -> mlua::Result<Reply> {
    if let LuaValue::String(text) = table.raw_get("err")? {
        return Ok(Err(text.to_string_lossy()));
    }
    if let LuaValue::String(text) = table.raw_get("ok")? {
        return Ok(Ok(Value::SimpleString(text.to_string_lossy())));
    }
    let mut values = Vec::new();
    loop {
        match table.raw_get(values.len() + 1)? {
            LuaValue::Nil => return Ok(Ok(Value::Array(values))),
            value => match to_reply(&value)? {
                Ok(value) => values.push(value),
                error => return Ok(error),
            },
        }
    }
}

/// What a script that failed answers: the error of the command that it called, or what Lua says.
fn error_text(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => error_text(cause),
        other => match other.downcast_ref::<Raised>() {
            Some(Raised(text)) => text.clone(),
            None => format!("ERR Error running script: {other}"),
        },
    }
}
