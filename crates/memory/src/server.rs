//! A server as a value: what it keeps, the scripts it knows, who listens, and the commands of clients.

use crate::command::{Nature, nature};
use crate::interpreter::{FULL, Interpreter, Work, unknown};
use crate::lock;
use crate::store::{Bytes, Reply, Store, integer};
use redis::{ConnectionLike, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::sync::MutexGuard;

/// A Redis in this process, of which each command is a call that returns: the scripts' own text runs on it, in a Lua 5.1.
///
/// It is a [`redis::ConnectionLike`], so `redis::cmd` runs on it. Nothing in it runs
/// by itself and its clock stands still, so that a simulation decides what happens, when, and in which order.
pub struct Server {
    interpreter: Interpreter,
}

impl Server {
    /// An empty server, whose time is 2020-01-01.
    ///
    /// # Errors
    /// When there is no memory for a Lua.
    pub fn new() -> std::io::Result<Server> {
        let interpreter =
            Interpreter::new().map_err(|error| std::io::Error::other(error.to_string()))?;
        let mut server = Server { interpreter };
        server.with_store(|store| store.set_micros(1_577_836_800_000_000));
        Ok(server)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        lock(&self.interpreter.work)
    }

    /// A copy of what it keeps.
    pub fn store(&self) -> Store {
        self.work().store.clone()
    }

    /// Keeps this, in place of what it kept: a server that restarts, or a replica that takes its place.
    pub fn set_store(&mut self, store: Store) {
        self.work().store = store;
    }

    /// Looks at what it keeps, or changes it.
    pub fn with_store<T>(&mut self, look: impl FnOnce(&mut Store) -> T) -> T {
        look(&mut self.work().store)
    }

    /// Says how many listen to a channel.
    pub fn set_listeners(&mut self, channel: &[u8], count: usize) {
        let mut work = self.work();
        if count == 0 {
            work.listeners.remove(channel);
        } else {
            work.listeners.insert(channel.to_vec(), count);
        }
    }

    /// Says whether its memory is full: then what needs more is refused, as `maxmemory` with `noeviction` does.
    pub fn set_full(&mut self, full: bool) {
        self.work().full = full;
    }

    /// What was published since this was last asked: channel and message.
    pub fn take_published(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.work().published)
    }

    /// How many commands the last script called.
    pub fn calls_of_last_script(&self) -> u64 {
        self.work().calls
    }

    /// Carries out a command of a client: its name and arguments.
    pub(crate) fn execute(&mut self, words: &[Bytes]) -> Reply {
        let Some((command, arguments)) = words.split_first() else {
            return Err("ERR an empty command".to_owned());
        };
        let command = String::from_utf8_lossy(command).to_ascii_uppercase();
        match (command.as_str(), arguments) {
            ("EVALSHA", [name, count, rest @ ..]) => {
                let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                let (keys, arguments) = split_keys(count, rest)?;
                self.interpreter.run(&name, keys, arguments)
            }
            ("EVAL", [text, count, rest @ ..]) => {
                let (keys, arguments) = split_keys(count, rest)?;
                let name = self.interpreter.load_for_now(text)?;
                self.interpreter.run(&name, keys, arguments)
            }
            ("SCRIPT", [what, rest @ ..]) => match (what.to_ascii_uppercase().as_slice(), rest) {
                (b"LOAD", [text]) => {
                    let name = self.interpreter.load(text)?;
                    Ok(Value::BulkString(name.into_bytes()))
                }
                (b"EXISTS", names) => {
                    let known = names.iter().map(|name| {
                        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                        Value::Int(self.interpreter.knows(&name).into())
                    });
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
            ("PUBLISH" | "PUBSUB", _) => self.work().messaging(&command, arguments),
            _ => match nature(&command, arguments) {
                Some(Ok(Nature::Grows)) if self.work().full => Err(FULL.to_owned()),
                Some(Ok(_)) => self.work().store.execute(&command, arguments),
                Some(Err(text)) => Err(text),
                None => Err(unknown(&command)),
            },
        }
    }
}

/// The keys and the arguments of a script.
fn split_keys<'a>(count: &[u8], rest: &'a [Bytes]) -> Result<(&'a [Bytes], &'a [Bytes]), String> {
    let count = usize::try_from(integer(count)?)
        .map_err(|_| "ERR Number of keys can't be negative".to_owned())?;
    rest.split_at_checked(count)
        .ok_or_else(|| "ERR Number of keys can't be greater than number of args".to_owned())
}

/// The words of a command as it is sent.
pub(crate) fn words(command: Value) -> Option<Vec<Bytes>> {
    let Value::Array(words) = command else {
        return None;
    };
    let words = words.into_iter().map(|word| match word {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    words.collect()
}

/// An error or a status is one line.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// An error reply, as it stands in an array.
pub(crate) fn error_value(text: &str) -> Value {
    let packed = format!("-{}\r\n", one_line(text));
    redis::parse_redis_value(packed.as_bytes()).unwrap_or(Value::Nil)
}

/// An error reply as a connection gives it.
fn to_error(text: String) -> RedisError {
    match error_value(&text) {
        Value::ServerError(error) => error.into(),
        _ => (
            ErrorKind::Server(ServerErrorKind::ResponseError),
            "error",
            text,
        )
            .into(),
    }
}

impl ConnectionLike for Server {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        let parsed = redis::parse_redis_value(command)?;
        let words = words(parsed).ok_or((ErrorKind::Parse, "not a command"))?;
        self.execute(&words).map_err(to_error)
    }

    fn req_packed_commands(
        &mut self,
        mut commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let mut replies = Vec::new();
        let mut parser = redis::Parser::new();
        for place in 0..offset + count {
            let parsed = parser.parse_value(&mut commands)?;
            let words = words(parsed).ok_or((ErrorKind::Parse, "not a command"))?;
            let reply = self.execute(&words).map_err(to_error);
            if place >= offset {
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
