//! One Lua script: its text, its SHA-1, and how it is run. Knows nothing of what the script does.

use once_cell::sync::Lazy;
use redis::{Cmd, ConnectionLike, RedisResult, ServerErrorKind, Value};

/// A script, made of parts of `lua/` in the order of the manifest.
pub(crate) struct Script {
    text: String,
    sha1: String,
}

impl Script {
    /// A script of these parts. Used through [`Lazy`], so that each text is put together and hashed once.
    pub(crate) fn new(parts: &[&str]) -> Script {
        let text = parts.concat();
        let sha1 = sha1_smol::Sha1::from(&text).digest().to_string();
        Script { text, sha1 }
    }

    /// Runs the script by its SHA-1. A server that does not know it (a restart, `SCRIPT FLUSH`, a failover) is given
    /// the text and asked again in one packet.
    pub(crate) fn run(&self, con: &mut dyn ConnectionLike, call: &Call) -> RedisResult<Value> {
        let command = self.command(call);
        match command.query(con) {
            Err(error) if no_script(&error) => {
                let mut replies = self.load_and_run(con, vec![command])?;
                replies.pop().unwrap_or(Err(error))
            }
            result => result,
        }
    }

    /// Runs the script for each of `calls`, in one packet. A call that fails does not keep the others from running.
    pub(crate) fn run_all(
        &self,
        con: &mut dyn ConnectionLike,
        calls: &[Call],
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let commands: Vec<Cmd> = calls.iter().map(|call| self.command(call)).collect();
        let replies = send(con, commands.clone())?;
        if replies.iter().any(|r| r.as_ref().is_err_and(no_script)) {
            // Running again what ran already is harmless by the scripts' contract.
            return self.load_and_run(con, commands);
        }
        Ok(replies)
    }

    fn load_and_run(
        &self,
        con: &mut dyn ConnectionLike,
        mut commands: Vec<Cmd>,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        commands.insert(0, self.load());
        let mut replies = send(con, commands)?.into_iter();
        if let Some(Err(error)) = replies.next() {
            return Err(error); // it may not be loaded: a clearer reason than that it is not known
        }
        Ok(replies.collect())
    }

    fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }

    fn command(&self, call: &Call) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha1).arg(call.keys.len());
        for key in &call.keys {
            command.arg(*key);
        }
        for argument in &call.arguments {
            match argument {
                Argument::Text(text) => command.arg(*text),
                Argument::Number(number) => command.arg(*number),
            };
        }
        command
    }
}

/// Sends commands in one packet; each has its own outcome.
fn send(con: &mut dyn ConnectionLike, commands: Vec<Cmd>) -> RedisResult<Vec<RedisResult<Value>>> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline.query(con)
}

fn no_script(error: &redis::RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The keys and arguments of one run.
pub(crate) struct Call<'a> {
    pub(crate) keys: [&'a str; 3],
    pub(crate) arguments: Vec<Argument<'a>>,
}

/// One argument of a script.
pub(crate) enum Argument<'a> {
    Text(&'a str),
    Number(i64),
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Argument::Text(text)
    }
}

impl From<u64> for Argument<'_> {
    fn from(number: u64) -> Self {
        // Numbers above i64 are refused by the script, as any other out of range.
        Argument::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A script that is put together at its first use.
pub(crate) type LazyScript = Lazy<Script>;
