//! A server: its state, its scripts, and the commands of clients.

use crate::interpreter::Interpreter;
use crate::reply::{Bytes, Reply, bulk, integer, number, unknown};
use crate::resp::{error_value, words};
use crate::state::ServerState;
use crate::store::Store;
use crate::sync::lock;
use redis::{ConnectionLike, ErrorKind, RedisResult, Value};
use std::sync::{Arc, Mutex, MutexGuard};

/// A Redis server as a value. Each command is a function call.
///
/// It implements `redis::ConnectionLike`, and runs scripts in Lua 5.1. It does nothing between commands, and
/// its clock does not advance: a simulation decides what happens, when, and in which order.
pub struct Server {
    interpreter: Interpreter,
    state: Arc<Mutex<ServerState>>,
}

impl Server {
    /// An empty server. Its time is 2020-01-01.
    ///
    /// # Errors
    /// When there is no memory for the Lua interpreter.
    pub fn new() -> std::io::Result<Server> {
        let state = Arc::<Mutex<ServerState>>::default();
        let interpreter =
            Interpreter::new(state.clone()).map_err(|error| std::io::Error::other(error.to_string()))?;
        lock(&state).store.set_micros(1_577_836_800_000_000);
        Ok(Server { interpreter, state })
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        lock(&self.state)
    }

    /// A copy of its keys and its clock.
    pub fn store(&self) -> Store {
        self.state().store.clone()
    }

    /// Replaces its keys and its clock, as after a restart or a failover to a replica.
    pub fn set_store(&mut self, store: Store) {
        self.state().store = store;
    }

    /// Gives access to its keys and its clock.
    pub fn with_store<T>(&mut self, look: impl FnOnce(&mut Store) -> T) -> T {
        look(&mut self.state().store)
    }

    /// Sets how many clients are subscribed to a channel.
    pub fn set_listeners(&mut self, channel: &[u8], count: usize) {
        let mut state = self.state();
        if count == 0 {
            state.subscribers.remove(channel);
        } else {
            state.subscribers.insert(channel.to_vec(), count);
        }
    }

    /// Sets whether its memory is full. Then it denies commands that need more, like Redis with `maxmemory`
    /// and `noeviction`.
    pub fn set_full(&mut self, full: bool) {
        self.state().full = full;
    }

    /// Returns the messages that were published since the last call: channel and message.
    pub fn take_published(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.state().published)
    }

    /// How many commands the last script called.
    pub fn calls_of_last_script(&self) -> u64 {
        self.state().calls
    }

    /// Executes a command of a client, given as its name and its arguments.
    pub(crate) fn execute(&mut self, words: &[Bytes]) -> Reply {
        let Some((command, arguments)) = words.split_first() else {
            return Err("ERR an empty command".to_owned());
        };
        let command = String::from_utf8_lossy(command).to_ascii_uppercase();
        match (command.as_str(), arguments) {
            ("EVALSHA", [name, count, rest @ ..]) => {
                let (keys, arguments) = split_keys(count, rest)?;
                self.interpreter.run(&lowercase(name), keys, arguments)
            }
            ("EVAL", [text, count, rest @ ..]) => {
                let (keys, arguments) = split_keys(count, rest)?;
                let name = self.interpreter.load_for_eval(text)?;
                self.interpreter.run(&name, keys, arguments)
            }
            ("SCRIPT", [what, rest @ ..]) => match (what.to_ascii_uppercase().as_slice(), rest) {
                (b"LOAD", [text]) => self.interpreter.load(text).map(bulk),
                (b"EXISTS", names) => {
                    let knows = |name: &Bytes| self.interpreter.knows(&lowercase(name));
                    let known = names.iter().map(|name| number(knows(name)));
                    Ok(Value::Array(known.collect()))
                }
                (b"FLUSH", _) => {
                    self.interpreter.forget_all();
                    Ok(Value::Okay)
                }
                _ => Err(unknown("SCRIPT")),
            },
            ("PING", []) => Ok(Value::SimpleString("PONG".to_owned())),
            ("CLIENT" | "SELECT", _) => Ok(Value::Okay),
            _ => self.state().execute(&command, arguments),
        }
    }

    /// Executes a command as a connection sends it.
    fn request(&mut self, command: Value) -> RedisResult<Value> {
        let words = words(command).ok_or((ErrorKind::Parse, "not a command"))?;
        let error = |text: String| error_value(&text).extract_error();
        self.execute(&words).or_else(error)
    }
}

fn lowercase(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

/// Splits the keys from the arguments of a script.
fn split_keys<'a>(count: &[u8], rest: &'a [Bytes]) -> Result<(&'a [Bytes], &'a [Bytes]), String> {
    let count =
        usize::try_from(integer(count)?).map_err(|_| "ERR Number of keys can't be negative".to_owned())?;
    rest.split_at_checked(count)
        .ok_or_else(|| "ERR Number of keys can't be greater than number of args".to_owned())
}

impl ConnectionLike for Server {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.request(redis::parse_redis_value(command)?)
    }

    fn req_packed_commands(
        &mut self,
        mut commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let mut replies = Vec::new();
        let mut parser = redis::Parser::new();
        for index in 0..offset + count {
            let reply = self.request(parser.parse_value(&mut commands)?);
            if index >= offset {
                replies.push(reply?);
            }
        }
        Ok(replies)
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}
