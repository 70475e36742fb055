//! Lua 5.1 as Redis has it: scripts that call commands of a store.

use crate::command::{Nature, keys_of, nature, wrong_arity};
use crate::lock;
use crate::packing;
use crate::server::{error_value, one_line};
use crate::sorted_set::number_text;
use crate::store::{Bytes, Reply, Store};
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue, VmState,
};
use redis::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The error of what needs more memory when there is none.
pub(crate) const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const WRONG_COUNT: &str = "ERR Wrong number of args calling Redis command from script";

/// How many scripts that came by EVAL are kept.
const MOST_PASSING: usize = 500;

/// What Redis puts around a script: errors are tables, which `pcall` opens, and a script has no globals of its own. Returns what runs
/// a script.
const AROUND: &str = "
  local error, next, pcall, setmetatable, tostring, type = error, next, pcall, setmetatable, tostring, type
  local _G, redis, select, struct = _G, redis, select, struct
  local sha1hex = redis.sha1hex
  function redis.sha1hex(...)
    if select('#', ...) ~= 1 then error('wrong number of arguments', 0) end
    local value = ...
    return sha1hex(type(value) == 'number' and tostring(value) or value)
  end
  local unpack = struct.unpack
  local function whole(...)
    if select('#', ...) == 0 then error(\"bad argument #2 to 'unpack' (data string too short)\", 3) end
    return ...
  end
  function struct.unpack(...) return whole(unpack(...)) end
  local function opened(ok, value, ...)
    if not ok and type(value) == 'table' and value.err then value = value.err end
    return ok, value, ...
  end
  function _G.pcall(...) return opened(pcall(...)) end
  function redis.call(...)
    local reply = redis.pcall(...)
    if type(reply) == 'table' and reply.err then error(reply) end
    return reply
  end
  local globals = {}
  for name, value in next, _G do globals[name] = value end
  for name in next, globals do _G[name] = nil end
  setmetatable(globals, {
    __index = function(_, name)
      error(\"Script attempted to access nonexistent global variable '\" .. tostring(name) .. \"'\", 2)
    end,
  })
  setmetatable(_G, {
    __index = globals,
    __newindex = function() error('Attempt to modify a readonly table', 2) end,
  })
  return function(script, keys, arguments)
    globals.KEYS, globals.ARGV = keys, arguments
    local ok, value = pcall(script)
    if ok then return value end
    if type(value) ~= 'table' then return {err = 'ERR ' .. tostring(value)} end
    return {err = type(value.err) == 'string' and value.err or 'ERR unknown error'}
  end";

/// A script that runs for so many times so many instructions does not end.
const INSTRUCTIONS: u32 = 1_000_000;
const MOST: u32 = 50;

/// What a script works on, while it runs.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) store: Store,
    /// How many listen to each channel.
    pub(crate) listeners: BTreeMap<Bytes, usize>,
    /// What was published, in order: channel and message.
    pub(crate) published: Vec<(Bytes, Bytes)>,
    /// Whether memory is full.
    pub(crate) full: bool,
    /// How many commands the script called.
    pub(crate) calls: u64,
    wrote: bool,
    declared: Vec<Bytes>,
}

impl Work {
    /// A command that a script calls.
    fn call(&mut self, command: &str, arguments: &[Bytes]) -> Reply {
        self.calls += 1;
        if matches!(command, "PUBLISH" | "PUBSUB") {
            let takes = if command == "PUBLISH" {
                2..=2
            } else {
                1..=usize::MAX
            };
            if !takes.contains(&arguments.len()) {
                return Err(WRONG_COUNT.to_owned());
            }
            return self.messaging(command, arguments);
        }
        let nature = match nature(command, arguments) {
            Some(Ok(nature)) => nature,
            Some(Err(_)) => return Err(WRONG_COUNT.to_owned()),
            None => return Err("ERR Unknown Redis command called from script".to_owned()),
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
            return Err(FULL.to_owned());
        }
        self.wrote |= nature != Nature::Reads;
        self.store.execute(command, arguments)
    }

    /// Publishing, and counting who listens.
    pub(crate) fn messaging(&mut self, command: &str, arguments: &[Bytes]) -> Reply {
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
            ("PUBSUB", [_, ..]) => Err(unknown(command)),
            _ => Err(wrong_arity(command)),
        }
    }
}

/// The reply to a command that is not one of those that the scripts use.
pub(crate) fn unknown(command: &str) -> String {
    format!(
        "ERR unknown command '{command}': a server in memory knows what luagate's scripts use, and little more"
    )
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A Lua with the scripts that it was given.
pub(crate) struct Interpreter {
    lua: Lua,
    /// Runs a script.
    run: Function,
    scripts: HashMap<String, Function>,
    /// Those of them that came by EVAL alone, the oldest first.
    passing: VecDeque<String>,
    pub(crate) work: Arc<Mutex<Work>>,
    /// How many instructions the script has run, in steps.
    ran: Arc<AtomicU32>,
}

impl Interpreter {
    pub(crate) fn new() -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let work = Arc::<Mutex<Work>>::default();
        let redis = lua.create_table()?;
        redis.set("pcall", command(&lua, work.clone())?)?;
        redis.set("error_reply", lua.create_function(error_reply)?)?;
        redis.set("status_reply", lua.create_function(status_reply)?)?;
        redis.set("sha1hex", lua.create_function(sha1hex)?)?;
        let globals = lua.globals();
        globals.set("redis", redis)?;
        globals.set("struct", packing::library(&lua)?)?;
        for name in ["print", "dofile", "loadfile"] {
            globals.set(name, LuaValue::Nil)?; // what Redis does not give
        }
        let ran = Arc::<AtomicU32>::default();
        let counted = ran.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_hook(triggers, move |_, _| {
            match counted.fetch_add(1, Ordering::Relaxed) {
                ..MOST => Ok(VmState::Continue),
                _ => Err(mlua::Error::runtime("the script runs for too long")),
            }
        })?;
        let run = lua.load(AROUND).call(())?;
        Ok(Interpreter {
            lua,
            run,
            scripts: HashMap::new(),
            passing: VecDeque::new(),
            work,
            ran,
        })
    }

    /// Makes a script known for as long as the server runs; returns its SHA-1.
    pub(crate) fn load(&mut self, text: &[u8]) -> Result<String, String> {
        let name = self.compile(text)?;
        self.passing.retain(|passing| *passing != name);
        Ok(name)
    }

    /// Makes a script known that came by EVAL: of those the server keeps the last ones only.
    pub(crate) fn load_for_now(&mut self, text: &[u8]) -> Result<String, String> {
        let is_known = self.knows(&sha1(text));
        let name = self.compile(text)?;
        if !is_known {
            self.passing.push_back(name.clone());
        }
        if self.passing.len() > MOST_PASSING
            && let Some(oldest) = self.passing.pop_front()
        {
            self.scripts.remove(&oldest);
        }
        Ok(name)
    }

    fn compile(&mut self, text: &[u8]) -> Result<String, String> {
        let name = sha1(text);
        if !self.scripts.contains_key(&name) {
            let script = self.lua.load(text).set_name("@user_script");
            let script = script.into_function().map_err(|error| {
                let why = match error {
                    mlua::Error::SyntaxError { message, .. } => message,
                    other => other.to_string(),
                };
                format!("ERR Error compiling script (new function): {why}")
            })?;
            self.scripts.insert(name.clone(), script);
        }
        Ok(name)
    }

    pub(crate) fn forget_all(&mut self) {
        self.scripts.clear();
        self.passing.clear();
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.scripts.contains_key(name)
    }

    /// Runs a script that was loaded.
    pub(crate) fn run(&self, name: &str, keys: &[Bytes], arguments: &[Bytes]) -> Reply {
        let Some(script) = self.scripts.get(name) else {
            return Err("NOSCRIPT No matching script.".to_owned());
        };
        let mut work = lock(&self.work);
        (work.wrote, work.calls) = (false, 0);
        work.declared = keys.to_vec();
        drop(work);
        self.ran.store(0, Ordering::Relaxed);
        self.run_function(script, keys, arguments)
            .unwrap_or_else(|error| Err(format!("ERR {error}")))
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
        let work = (script, list(keys)?, list(arguments)?);
        to_reply(&self.run.call(work)?)
    }
}

/// The name of a script.
pub(crate) fn sha1(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

/// `redis.pcall`: a command, whose error is a table.
fn command(lua: &Lua, work: Arc<Mutex<Work>>) -> mlua::Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let words: Option<Vec<Bytes>> = values.iter().map(to_word).collect();
        let reply = match words.as_deref().map(<[Bytes]>::split_first) {
            Some(Some((command, arguments))) => {
                let command = String::from_utf8_lossy(command).to_ascii_uppercase();
                lock(&work).call(&command, arguments)
            }
            Some(None) => {
                Err("ERR Please specify at least one argument for this redis lib call".to_owned())
            }
            None => {
                Err("ERR Lua redis lib command arguments must be strings or integers".to_owned())
            }
        };
        match reply {
            Ok(reply) => to_lua(lua, &reply),
            Err(text) => Ok(LuaValue::Table(field(lua, "err", text)?)),
        }
    })
}

/// A table of one field.
fn field(lua: &Lua, name: &str, value: impl mlua::IntoLua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(table)
}

const WRONG_ARGUMENTS: &str = "ERR wrong number or type of arguments";

/// `redis.error_reply`: an error that has no code of its own has the code ERR.
fn error_reply(lua: &Lua, values: MultiValue) -> mlua::Result<Table> {
    let text = match values.iter().collect::<Vec<_>>().as_slice() {
        [LuaValue::String(text)] => match text.to_string_lossy() {
            text if text.starts_with('-') => text.trim_start_matches('-').to_owned(),
            text if text.contains(' ') => text,
            text => format!("ERR {text}"),
        },
        _ => WRONG_ARGUMENTS.to_owned(),
    };
    field(lua, "err", text)
}

/// `redis.status_reply`.
fn status_reply(lua: &Lua, values: MultiValue) -> mlua::Result<Table> {
    match values.iter().collect::<Vec<_>>().as_slice() {
        [LuaValue::String(text)] => field(lua, "ok", text.clone()),
        _ => field(lua, "err", WRONG_ARGUMENTS),
    }
}

/// `redis.sha1hex` of a text; what is no text counts as an empty one.
fn sha1hex(_: &Lua, value: LuaValue) -> mlua::Result<String> {
    Ok(match value {
        LuaValue::String(text) => sha1(&text.as_bytes()),
        _ => sha1(b""),
    })
}

/// An argument of a command: text, or a number.
fn to_word(value: &LuaValue) -> Option<Bytes> {
    match value {
        LuaValue::String(text) => Some(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Some(number_text(*number as f64).into_bytes()),
        LuaValue::Number(number) => Some(number_text(*number).into_bytes()),
        _ => None,
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
        Value::Okay => LuaValue::Table(field(lua, "ok", "OK")?),
        Value::SimpleString(text) => LuaValue::Table(field(lua, "ok", text.as_str())?),
        _ => LuaValue::Boolean(false),
    })
}

/// What a script returns, as a client sees it: numbers are cut to integers, an array ends at its first nil.
fn to_reply(value: &LuaValue) -> mlua::Result<Reply> {
    Ok(Ok(match value {
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Value::Int(*number),
        LuaValue::Number(number) => Value::Int(cut(*number)),
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Table(table) => return table_to_reply(table),
        _ => Value::Nil,
    }))
}

/// A number without its fraction. One that is too big becomes the smallest there is, as x86 has it.
fn cut(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

fn table_to_reply(table: &Table) -> mlua::Result<Reply> {
    if let LuaValue::String(text) = table.raw_get("err")? {
        return Ok(Err(text.to_string_lossy()));
    }
    if let LuaValue::String(text) = table.raw_get("ok")? {
        return Ok(Ok(status(one_line(&text.to_string_lossy()))));
    }
    let mut values = Vec::new();
    loop {
        match table.raw_get(values.len() + 1)? {
            LuaValue::Nil => return Ok(Ok(Value::Array(values))),
            value => values.push(to_reply(&value)?.unwrap_or_else(|text| error_value(&text))),
        }
    }
}

fn status(text: String) -> Value {
    match text.as_str() {
        "OK" => Value::Okay,
        _ => Value::SimpleString(text),
    }
}
