//! One Lua script: its text, its SHA-1, and how it is run. Knows nothing of what the script does.

use crate::permission;
use once_cell::sync::Lazy;
use redis::{Cmd, Connection, ConnectionLike, RedisError, RedisResult, ServerErrorKind, Value};

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
    /// the text and asked again in one packet. A server reads a long packet in pieces, and may forget the text again in
    /// between; then text and call are one command.
    pub(crate) fn run(&self, con: &mut dyn ConnectionLike, call: &Call) -> RedisResult<Value> {
        self.run_anyhow(con, call)
            .map_err(|error| self.explain(error, call))
    }

    fn run_anyhow(&self, con: &mut dyn ConnectionLike, call: &Call) -> RedisResult<Value> {
        let command = self.command(call);
        match command.query(con) {
            Err(error) if no_script(&error) => {}
            result => return result,
        }
        // A connection to a cluster takes no packet of several commands, and would load the script on all nodes, of which
        // one that stalls elsewhere fails the call.
        if !con.supports_pipelining() {
            return self.whole(call).query(con);
        }
        match self.load_and_run(con, command) {
            Err(error) if no_script(&error) => self.whole(call).query(con),
            result => result,
        }
    }

    /// Runs the script for each of `calls`, and then the command `last`, in one packet. A call that fails does not keep the
    /// others from running. The reply to `last` comes last.
    pub(crate) fn run_all(
        &self,
        con: &mut Connection,
        calls: &[Call],
        last: Option<&Cmd>,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let mut replies = self.run_all_anyhow(con, calls, last)?;
        for (reply, call) in replies.iter_mut().zip(calls) {
            if let Err(error) = reply {
                *error = self.explain(error.clone(), call);
            }
        }
        Ok(replies)
    }

    fn run_all_anyhow(
        &self,
        con: &mut Connection,
        calls: &[Call],
        last: Option<&Cmd>,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let commands = || calls.iter().map(|call| self.command(call));
        let packet: Vec<Cmd> = commands().chain(last.cloned()).collect();
        let replies = send(con, &packet)?;
        if !replies.iter().any(|r| r.as_ref().is_err_and(no_script)) {
            return Ok(replies);
        }
        // Running again what ran already is harmless by the scripts' contract.
        let mut again = vec![self.load()];
        again.extend(packet);
        let mut replies = send(con, &again)?.into_iter();
        if let Some(Err(error)) = replies.next() {
            return Err(error);
        }
        let mut replies: Vec<_> = replies.collect();
        for (place, call) in calls.iter().enumerate() {
            let missing = replies.get(place);
            if !missing.is_some_and(|reply| reply.as_ref().is_err_and(no_script)) {
                continue;
            }
            let whole: Vec<Cmd> = std::iter::once(self.whole(call))
                .chain(last.cloned())
                .collect();
            let mut answers = send(con, &whole)?.into_iter();
            if let (Some(reply), Some(answer)) = (replies.get_mut(place), answers.next()) {
                *reply = answer;
            }
            if let (Some(answer), Some(reply)) = (answers.next(), replies.last_mut()) {
                *reply = answer;
            }
        }
        Ok(replies)
    }

    fn explain(&self, error: RedisError, call: &Call) -> RedisError {
        permission::name_in_script(error, &self.text, &call.keys)
    }

    fn load_and_run(&self, con: &mut dyn ConnectionLike, command: Cmd) -> RedisResult<Value> {
        let mut pipeline = redis::pipe();
        pipeline
            .ignore_errors()
            .add_command(self.load())
            .add_command(command);
        let (loaded, reply): (RedisResult<Value>, RedisResult<Value>) = pipeline.query(con)?;
        loaded?; // a clearer reason than that the script is not known
        reply
    }

    fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }

    /// A call of the script that the server knows by its SHA-1.
    fn command(&self, call: &Call) -> Cmd {
        Self::with_arguments("EVALSHA", &self.sha1, call)
    }

    /// A call that brings the script along.
    fn whole(&self, call: &Call) -> Cmd {
        Self::with_arguments("EVAL", &self.text, call)
    }

    fn with_arguments(name: &str, script: &str, call: &Call) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(call.keys.len());
        for key in &call.keys {
            command.arg(*key);
        }
        for argument in &call.arguments {
            match argument {
                Argument::Bytes(bytes) => command.arg(*bytes),
                Argument::Number(number) => command.arg(*number),
            };
        }
        command
    }
}

/// Sends commands in one packet; each has its own outcome. The first reply that does not come in time ends it: a pipeline
/// of `redis` would wait as long for each of the others.
fn send(con: &mut Connection, commands: &[Cmd]) -> RedisResult<Vec<RedisResult<Value>>> {
    let mut packet = Vec::new();
    for command in commands {
        command.write_packed_command(&mut packet);
    }
    con.send_packed_command(&packet)?;
    let mut replies = Vec::with_capacity(commands.len());
    for _ in commands {
        replies.push(match con.recv_response()? {
            Value::ServerError(error) => Err(error.into()),
            reply => Ok(reply),
        });
    }
    Ok(replies)
}

fn no_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The keys and arguments of one run.
pub(crate) struct Call<'a> {
    pub(crate) keys: Vec<&'a str>,
    pub(crate) arguments: Vec<Argument<'a>>,
}

/// One argument of a script.
pub(crate) enum Argument<'a> {
    Bytes(&'a [u8]),
    Number(i64),
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Argument::Bytes(text.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for Argument<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Argument::Bytes(bytes)
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
