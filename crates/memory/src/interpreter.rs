//! Lua 5.1 with the functions that a Redis server gives to scripts, and the scripts that it has loaded.

mod conversion;
mod packing;

use crate::reply::{Bytes, Reply};
use crate::state::ServerState;
use crate::sync::lock;
use conversion::{table, to_lua, to_reply, to_word};
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Value, VmState};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// How many scripts are kept that were only sent with EVAL.
const MAX_EVAL_SCRIPTS: usize = 500;

/// The instructions of a step, and the maximum number of steps of a script.
const STEP: u32 = 1_000_000;
const MAX_STEPS: u32 = 50;

const WRONG_ARGUMENTS: &str = "ERR wrong number or type of arguments";

pub(crate) struct Interpreter {
    lua: Lua,
    state: Arc<Mutex<ServerState>>,
    /// Runs a script with its keys and arguments. It comes from `sandbox.lua`.
    run: Function,
    /// By their SHA-1.
    scripts: HashMap<String, Function>,
    /// The scripts that were only sent with EVAL, the oldest first.
    eval_scripts: VecDeque<String>,
    /// How many steps the script has run.
    steps: Arc<AtomicU32>,
}

impl Interpreter {
    pub(crate) fn new(state: Arc<Mutex<ServerState>>) -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let redis = lua.create_table()?;
        let shared = state.clone();
        let pcall = move |lua: &Lua, words| pcall(lua, &shared, words);
        redis.set("pcall", lua.create_function(pcall)?)?;
        redis.set("error_reply", lua.create_function(error_reply)?)?;
        redis.set("status_reply", lua.create_function(status_reply)?)?;
        redis.set("sha1hex", lua.create_function(sha1hex)?)?;
        let globals = lua.globals();
        globals.set("redis", redis)?;
        globals.set("struct", packing::library(&lua)?)?;
        for name in ["print", "dofile", "loadfile"] {
            globals.set(name, Value::Nil)?; // Redis does not have them
        }
        let steps = Arc::<AtomicU32>::default();
        let counter = steps.clone();
        let triggers = HookTriggers::new().every_nth_instruction(STEP);
        lua.set_hook(triggers, move |_, _| match counter.fetch_add(1, Ordering::Relaxed) {
            ..MAX_STEPS => Ok(VmState::Continue),
            _ => Err(mlua::Error::runtime("the script runs for too long")),
        })?;
        let run = lua.load(include_str!("interpreter/sandbox.lua")).call(())?;
        Ok(Interpreter { lua, state, run, scripts: HashMap::new(), eval_scripts: VecDeque::new(), steps })
    }

    /// SCRIPT LOAD: keeps the script as long as the server runs. Returns its SHA-1.
    pub(crate) fn load(&mut self, text: &[u8]) -> Result<String, String> {
        let name = self.compile(text)?;
        self.eval_scripts.retain(|other| *other != name);
        Ok(name)
    }

    /// EVAL: keeps only the last of such scripts. Returns its SHA-1.
    pub(crate) fn load_for_eval(&mut self, text: &[u8]) -> Result<String, String> {
        let is_known = self.knows(&sha1(text));
        let name = self.compile(text)?;
        if !is_known {
            self.eval_scripts.push_back(name.clone());
        }
        if self.eval_scripts.len() > MAX_EVAL_SCRIPTS
            && let Some(oldest) = self.eval_scripts.pop_front()
        {
            self.scripts.remove(&oldest);
        }
        Ok(name)
    }

    fn compile(&mut self, text: &[u8]) -> Result<String, String> {
        let name = sha1(text);
        if !self.knows(&name) {
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
        self.eval_scripts.clear();
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.scripts.contains_key(name)
    }

    /// Runs a loaded script.
    pub(crate) fn run(&self, name: &str, keys: &[Bytes], arguments: &[Bytes]) -> Reply {
        let script = self.scripts.get(name).ok_or("NOSCRIPT No matching script.")?;
        lock(&self.state).begin_script(keys);
        self.steps.store(0, Ordering::Relaxed);
        let list = |texts: &[Bytes]| {
            let texts = texts.iter().map(|text| self.lua.create_string(text));
            self.lua.create_sequence_from(texts.collect::<mlua::Result<Vec<_>>>()?)
        };
        let run = || to_reply(&self.run.call((script, list(keys)?, list(arguments)?))?);
        run().unwrap_or_else(|error| Err(format!("ERR {error}")))
    }
}

/// The SHA-1 of a script, which is its name.
fn sha1(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

/// `redis.pcall`: executes a command. An error is a table with the field `err`.
fn pcall(lua: &Lua, state: &Mutex<ServerState>, words: MultiValue) -> mlua::Result<Value> {
    let words: Option<Vec<Bytes>> = words.iter().map(to_word).collect();
    let reply = match words.as_deref() {
        Some([command, arguments @ ..]) => {
            let command = String::from_utf8_lossy(command).to_ascii_uppercase();
            lock(state).call(&command, arguments)
        }
        Some([]) => Err("ERR Please specify at least one argument for this redis lib call".to_owned()),
        None => Err("ERR Lua redis lib command arguments must be strings or integers".to_owned()),
    };
    match reply {
        Ok(reply) => to_lua(lua, &reply),
        Err(text) => table(lua, "err", text),
    }
}

/// `redis.error_reply`. An error without a code gets the code ERR.
fn error_reply(lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    let text = match only_text(&values).map(LuaString::to_string_lossy) {
        Some(text) if text.starts_with('-') => text.trim_start_matches('-').to_owned(),
        Some(text) if text.contains(' ') => text,
        Some(text) => format!("ERR {text}"),
        None => WRONG_ARGUMENTS.to_owned(),
    };
    table(lua, "err", text)
}

/// `redis.status_reply`.
fn status_reply(lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    match only_text(&values) {
        Some(text) => table(lua, "ok", text.clone()),
        None => table(lua, "err", WRONG_ARGUMENTS),
    }
}

/// The argument, if there is one and it is a text.
fn only_text(values: &MultiValue) -> Option<&LuaString> {
    match values.iter().collect::<Vec<_>>().as_slice() {
        [Value::String(text)] => Some(text),
        _ => None,
    }
}

/// `redis.sha1hex`. A value other than a text counts as an empty text.
fn sha1hex(_: &Lua, value: Value) -> mlua::Result<String> {
    Ok(match value {
        Value::String(text) => sha1(&text.as_bytes()),
        _ => sha1(b""),
    })
}
