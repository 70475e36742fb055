//! The subscription of a gate at one server: whether it receives what the scripts publish.
//!
//! Behind some proxies the server accepts the command but does not count the subscription, and the scripts would see no
//! subscriber. The two commands of the scripts are tried too, since the scripts ignore it if the user lacks a permission
//! for them.

use super::connection::Connection;
use super::mode::{MayBlock, block_with};
use super::server::Server;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::error::permission;
use crate::protocol::reply::unexpected;
use redis::{Cmd, Value};
use std::sync::Arc;
use std::time::Instant;

/// The result of an attempt to connect or to subscribe.
#[derive(Clone)]
pub(crate) enum Subscribed {
    Yes(Arc<Connection>),
    /// Messages do not arrive, because of the server or a proxy. Waiters only ask again.
    Useless,
}

impl Subscribed {
    pub(crate) fn connection(&self) -> Option<&Arc<Connection>> {
        match self {
            Subscribed::Yes(connection) => Some(connection),
            Subscribed::Useless => None,
        }
    }

    /// Whether it must be made again.
    pub(super) fn has_ended(&self) -> bool {
        self.connection().is_some_and(|connection| connection.has_ended())
    }
}

/// Subscribes this connection to the channel of the gate. The failure of a missing permission names it.
pub(super) fn begin(
    server: &Arc<Server>,
    connection: Arc<Connection>,
    until: Instant,
    may: MayBlock,
) -> Result<Subscribed, Failure> {
    let channel = server.channel();
    let mut subscribe = redis::cmd("SUBSCRIBE");
    let subscribed = command(&connection, subscribe.arg(channel), until, may);
    let counted = match reply(subscribed, channel)? {
        Some(_) => reply(server.command_blocking(&numsub(channel), until, may), channel)?,
        None => None,
    };
    reply(server.command_blocking(&publish(channel), until, may), channel)?;
    if is_counted(counted) {
        return Ok(Subscribed::Yes(connection));
    }
    // A subscription that has just broken is not counted either.
    reply(command(&connection, &redis::cmd("PING"), until, may), channel)?;
    connection.close();
    Ok(Subscribed::Useless)
}

/// Sends a command on this connection, and blocks until `until`. An error of the server is a value.
pub(super) fn command(
    connection: &Arc<Connection>,
    command: &Cmd,
    until: Instant,
    may: MayBlock,
) -> Result<Value, CallError> {
    let packet = command.get_packed_command();
    let replies = block_with(may, |mode| connection.exchange(packet, 1, until, mode))?;
    replies.into_iter().next().ok_or_else(|| unexpected(&"no reply"))
}

fn numsub(channel: &str) -> Cmd {
    let mut numsub = redis::cmd("PUBSUB");
    numsub.arg("NUMSUB").arg(channel);
    numsub
}

/// Publishes a message that is not one of luagate, so every client ignores it.
fn publish(channel: &str) -> Cmd {
    let mut publish = redis::cmd("PUBLISH");
    publish.arg(channel).arg("");
    publish
}

/// Whether the reply to [`numsub`] counts the subscription.
fn is_counted(reply: Option<Value>) -> bool {
    let count = reply.and_then(|reply| {
        let (_, count): (String, i64) = redis::from_redis_value(reply).ok()?;
        Some(count)
    });
    count.is_some_and(|count| count > 0)
}

/// The reply to one of the commands. `None`: the server, or a proxy ahead of it, does not know the command.
fn reply(reply: Result<Value, CallError>, channel: &str) -> Result<Option<Value>, Failure> {
    let failure = match reply {
        Ok(Value::ServerError(error)) => Failure::from(redis::RedisError::from(error)),
        Ok(reply) => return Ok(Some(reply)),
        Err(CallError::Failed(failure) | CallError::Unknown(failure)) => return Err(failure),
        Err(CallError::Invalid(_)) => return Ok(None),
    };
    match failure.kind() {
        FailureKind::Permission => {
            let text = permission::name_channel(failure.text(), channel);
            Err(Failure::new(FailureKind::Permission, text))
        }
        _ if failure.is_passing() || failure.is_broken() => Err(failure),
        _ => Ok(None),
    }
}
