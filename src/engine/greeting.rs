//! The first commands on a connection: they log in and select the database. Both are sent in one packet.

use super::socket::TimeLimit;
use super::stream::Stream;
use luagate_core::kind::FailureKind;
use luagate_core::meaning::Meaning;
use luagate_core::parser::{NoReply, Replies};
use luagate_core::value::{Refusal, Value};
use redis::{Cmd, ErrorKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind};
use std::io;

struct Greeting {
    steps: Vec<GreetingStep>,
    packet: Vec<u8>,
}

/// What a command is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GreetingStep {
    LogIn {
        with_user: bool,
    },
    Select,
    /// Only to receive a reply. With TLS, a server reports in its place that it refuses the certificate of
    /// the client.
    Answer,
}

/// Sends the first commands and checks their replies. `is_answered`: at least one reply is needed.
pub(super) fn greet(
    settings: &RedisConnectionInfo,
    is_answered: bool,
    stream: &dyn Stream,
    limit: TimeLimit,
) -> RedisResult<()> {
    let knows_users = Greeting::new(settings, settings.username(), is_answered).exchange(stream, limit)?;
    if !knows_users {
        Greeting::new(settings, None, is_answered).exchange(stream, limit)?;
    }
    Ok(())
}

impl Greeting {
    fn new(settings: &RedisConnectionInfo, user: Option<&str>, is_answered: bool) -> Greeting {
        let mut greeting = Greeting { steps: Vec::new(), packet: Vec::new() };
        // A user without a password is one that the server accepts with any password. Without AUTH it would
        // be another user.
        if let Some(password) = settings.password().or(user.map(|_| "")) {
            greeting.add(
                GreetingStep::LogIn { with_user: user.is_some() },
                redis::cmd("AUTH").arg(user).arg(password),
            );
        }
        if settings.db() != 0 {
            greeting.add(GreetingStep::Select, redis::cmd("SELECT").arg(settings.db()));
        }
        if is_answered && greeting.steps.is_empty() {
            greeting.add(GreetingStep::Answer, &redis::cmd("PING"));
        }
        greeting
    }

    fn add(&mut self, step: GreetingStep, command: &Cmd) {
        self.steps.push(step);
        self.packet.extend(command.get_packed_command());
    }

    /// Sends the commands and checks the replies. `false`: the server is too old for user names. It must be
    /// greeted again with the password alone.
    fn exchange(&self, stream: &dyn Stream, limit: TimeLimit) -> RedisResult<bool> {
        if !self.steps.is_empty() {
            self.send(stream, limit)?;
        }
        let mut replies = Replies::default();
        let mut knows_users = true;
        for step in &self.steps {
            match read_reply(&mut replies, stream, limit)? {
                Value::Error(refusal)
                    if *step == GreetingStep::LogIn { with_user: true } && is_about_the_user(&refusal) =>
                {
                    knows_users = false;
                }
                Value::Error(refusal) if knows_users => step.check(refusal)?,
                _ => {}
            }
        }
        Ok(knows_users)
    }

    fn send(&self, stream: &dyn Stream, limit: TimeLimit) -> io::Result<()> {
        stream.write_all(&self.packet).map_err(|error| {
            // The server may have sent the reason before it closed the connection.
            let reason = limit.read(stream, &mut [0]).err();
            reason.filter(|reason| reason.get_ref().is_some()).unwrap_or(error)
        })
    }
}

const REFUSED: &str = "the server refused the user name or password";

impl GreetingStep {
    /// The error of the connection, if this error reply means one.
    fn check(self, refusal: Refusal) -> RedisResult<()> {
        let kind = Meaning::of(&refusal).kind;
        let detail = refusal.detail().to_owned();
        let error = redis::make_extension_error(refusal.code().to_owned(), Some(detail.clone()));
        Err(match self {
            GreetingStep::Answer => return Ok(()),
            _ if kind == FailureKind::NotReady => error,
            GreetingStep::LogIn { .. } => (ErrorKind::AuthenticationFailed, REFUSED).into(),
            _ if kind == FailureKind::Authentication => error,
            GreetingStep::Select => {
                let kind = ServerErrorKind::ResponseError.into();
                (kind, "Redis server refused to switch database", detail).into()
            }
        })
    }
}

/// Whether `AUTH` with a user name is unknown to the server.
fn is_about_the_user(refusal: &Refusal) -> bool {
    refusal.detail().contains("wrong number of arguments for 'auth' command")
}

fn no_reply(_: NoReply) -> RedisError {
    (ErrorKind::Parse, "the answer is no reply of Redis").into()
}

/// Reads one byte at a time: what follows the last reply, for example a message, is for others.
fn read_reply(replies: &mut Replies, stream: &dyn Stream, limit: TimeLimit) -> RedisResult<Value> {
    let mut byte = [0];
    loop {
        if let Some(reply) = replies.next().map_err(no_reply)? {
            return Ok(reply);
        }
        if limit.read(stream, &mut byte)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        replies.push(&byte);
    }
}
