//! One Lua script: its text, its SHA-1, and how it is run. Knows nothing of what the script does.

use super::resp;
use crate::error::permission;
use once_cell::sync::Lazy;
use redis::{
    Cmd, Connection, ConnectionLike, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
};

/// A script of `lua/dist/`.
pub(crate) struct Script {
    text: &'static str,
    sha1: String,
}

impl Script {
    /// The script with this text. Used through [`Lazy`], so that each text is hashed once.
    pub(crate) fn new(text: &'static str) -> Script {
        let sha1 = sha1_smol::Sha1::from(text).digest().to_string();
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
        match ask(con, &command) {
            Err(error) if no_script(&error) => {}
            result => return result,
        }
        // A connection to a cluster takes no packet of several commands, and would load the script on all nodes, of which
        // one that stalls elsewhere fails the call.
        if !con.supports_pipelining() {
            return ask(con, &self.whole(call));
        }
        match self.load_and_run(con, command) {
            Err(error) if no_script(&error) => ask(con, &self.whole(call)),
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
        let last = last.map(Cmd::get_packed_command).unwrap_or_default();
        let commands: Vec<Vec<u8>> = calls.iter().map(|call| self.command(call)).collect();
        let mut packet = commands.concat();
        packet.extend_from_slice(&last);
        let behind = usize::from(!last.is_empty());
        let replies = send(con, &packet, calls.len() + behind)?;
        if !replies.iter().any(|r| r.as_ref().is_err_and(no_script)) {
            return Ok(replies);
        }
        // Running again what ran already is harmless by the scripts' contract.
        let mut again = self.load();
        again.append(&mut packet);
        let mut replies = send(con, &again, 1 + calls.len() + behind)?.into_iter();
        if let Some(Err(error)) = replies.next() {
            return Err(error);
        }
        let mut replies: Vec<_> = replies.collect();
        for (place, call) in calls.iter().enumerate() {
            let missing = replies.get(place);
            if !missing.is_some_and(|reply| reply.as_ref().is_err_and(no_script)) {
                continue;
            }
            let mut whole = self.whole(call);
            whole.extend_from_slice(&last);
            let mut answers = send(con, &whole, 1 + behind)?.into_iter();
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
        permission::name_in_script(error, self.text, &call.keys)
    }

    fn load_and_run(
        &self,
        con: &mut dyn ConnectionLike,
        mut command: Vec<u8>,
    ) -> RedisResult<Value> {
        let mut packet = self.load();
        packet.append(&mut command);
        let replies = con.req_packed_commands(&packet, 0, 2)?;
        let Ok([loaded, reply]) = <[Value; 2]>::try_from(replies) else {
            let text = "not as many replies as commands";
            return Err((ErrorKind::UnexpectedReturnType, text).into());
        };
        outcome(loaded)?; // a clearer reason than that the script is not known
        outcome(reply)
    }

    fn load(&self) -> Vec<u8> {
        let mut load = Vec::with_capacity(self.text.len() + 64);
        resp::begin(&mut load, 3);
        resp::word(&mut load, b"SCRIPT");
        resp::word(&mut load, b"LOAD");
        resp::word(&mut load, self.text.as_bytes());
        load
    }

    /// A call of the script that the server knows by its SHA-1.
    fn command(&self, call: &Call) -> Vec<u8> {
        call.command("EVALSHA", &self.sha1)
    }

    /// A call that brings the script along.
    fn whole(&self, call: &Call) -> Vec<u8> {
        call.command("EVAL", self.text)
    }
}

/// Sends one command.
fn ask(con: &mut dyn ConnectionLike, command: &[u8]) -> RedisResult<Value> {
    outcome(con.req_packed_command(command)?)
}

/// Sends so many commands in one packet; each has its own outcome. The first reply that does not come in time ends it: a
/// pipeline of `redis` would wait as long for each of the others.
fn send(
    con: &mut Connection,
    packet: &[u8],
    commands: usize,
) -> RedisResult<Vec<RedisResult<Value>>> {
    con.send_packed_command(packet)?;
    let mut replies = Vec::with_capacity(commands);
    for _ in 0..commands {
        replies.push(outcome(con.recv_response()?));
    }
    Ok(replies)
}

fn outcome(reply: Value) -> RedisResult<Value> {
    match reply {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

fn no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The keys and arguments of one run.
pub(crate) struct Call<'a> {
    pub(crate) keys: Vec<&'a str>,
    pub(crate) arguments: Vec<Argument<'a>>,
}

impl Call<'_> {
    /// This call by `name`, of the script that is named so.
    fn command(&self, name: &str, script: &str) -> Vec<u8> {
        let mut command = Vec::with_capacity(512 + script.len());
        resp::begin(&mut command, 3 + self.keys.len() + self.arguments.len());
        resp::word(&mut command, name.as_bytes());
        resp::word(&mut command, script.as_bytes());
        resp::number(&mut command, self.keys.len() as u64);
        for key in &self.keys {
            resp::word(&mut command, key.as_bytes());
        }
        for argument in &self.arguments {
            match argument {
                Argument::Bytes(bytes) => resp::word(&mut command, bytes),
                Argument::Number(number) => resp::number(&mut command, *number),
            }
        }
        command
    }
}

/// One argument of a script.
pub(crate) enum Argument<'a> {
    Bytes(&'a [u8]),
    Number(u64),
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
        Argument::Number(number)
    }
}

/// A script that is hashed at its first use.
pub(crate) type LazyScript = Lazy<Script>;
