//! Whether a subscription receives what the scripts publish. Behind some proxies the server accepts the command but does
//! not count the subscription, and the scripts would see no subscriber.
//!
//! The two commands of the scripts are tried too, since the scripts ignore it if the user lacks a permission for them.

use crate::error::failure::{Failure, FailureKind};
use crate::error::permission;
use crate::protocol::exchange::Reply;
use redis::{Cmd, Value};

/// The reason why it is unknown whether the subscription is counted.
pub(crate) enum NoMessages {
    Refused(Failure),
    Broken,
}

pub(crate) fn numsub(channel: &str) -> Cmd {
    let mut numsub = redis::cmd("PUBSUB");
    numsub.arg("NUMSUB").arg(channel);
    numsub
}

/// Publishes a message that is not one of luagate, so every client ignores it.
pub(crate) fn publish(channel: &str) -> Cmd {
    let mut publish = redis::cmd("PUBLISH");
    publish.arg(channel).arg("");
    publish
}

/// Whether the reply to [`numsub`] counts the subscription.
pub(crate) fn is_counted(reply: Option<Value>) -> bool {
    let count = reply.and_then(|reply| {
        let (_, count): (String, i64) = redis::from_redis_value(reply).ok()?;
        Some(count)
    });
    count.is_some_and(|count| count > 0)
}

/// The reply to one of the commands. `None`: the server, or a proxy ahead of it, does not know the command.
pub(crate) fn read(reply: Result<Reply, Failure>, channel: &str) -> Result<Option<Value>, NoMessages> {
    match reply {
        Ok(Ok(reply)) => Ok(Some(reply)),
        Ok(Err(error)) => match of_error(error.into(), channel) {
            Some(reason) => Err(reason),
            None => Ok(None),
        },
        Err(_) => Err(NoMessages::Broken),
    }
}

/// The meaning of an error. `None`: the command is not known. A refusal names the channel if that is what was refused.
pub(crate) fn of_error(failure: Failure, channel: &str) -> Option<NoMessages> {
    match failure.kind() {
        FailureKind::Permission => {
            let text = permission::name_channel(failure.text(), channel);
            Some(NoMessages::Refused(Failure::new(FailureKind::Permission, text)))
        }
        _ if failure.is_passing() || failure.is_broken() => Some(NoMessages::Broken),
        _ => None,
    }
}
