//! The subscription of one server to the channel of a gate: on its connection for calls, or on a second one if the
//! server or a proxy ahead of it does not send messages there.

use super::registry::Registry;
use crate::aio::transport::{Connection, Listener, Server};
use crate::error::failure::{Failure, FailureKind};
use crate::transport::connect::unconnected;
use crate::wait::trial::{self, NoMessages};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Cmd, RedisResult, Value};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The interval of connection tests of a second connection, since a broken connection may not report it.
const TEST: Duration = Duration::from_secs(5);

/// A subscription to the channel of a gate, or why messages do not arrive.
pub(super) enum Listening {
    /// It ends with the connection for calls. The second connection ends when this is dropped.
    Up { _second: Option<Second> },
    /// Messages do not arrive, because of a proxy.
    Useless,
}

/// The task that reads a second connection.
pub(super) struct Second(AbortHandle);

impl Drop for Second {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Subscribes to `channel` at the server of this connection, and checks that the server counts the subscription.
pub(super) async fn subscribe(
    registry: &Arc<Registry>,
    server: &Arc<Server>,
    connection: &Arc<Connection>,
    channel: &str,
) -> Result<Listening, Failure> {
    let time = server.options.timeouts.connect;
    if connection.is_resp3 {
        let subscribed = timeout(time, connection.subscribe(channel)).await;
        if is_up(server, subscribed.unwrap_or_else(|_| Err(silent())), channel).await? {
            return Ok(Listening::Up { _second: None });
        }
    }
    let client = server.client().await?;
    let connected = timeout(time, client.get_async_pubsub()).await.unwrap_or_else(|_| Err(silent()));
    let (mut sink, messages) = connected.map_err(|error| unconnected(error, time))?.split();
    let subscribed = timeout(time, sink.subscribe(channel)).await;
    if !is_up(server, subscribed.unwrap_or_else(|_| Err(silent())), channel).await? {
        return Ok(Listening::Useless);
    }
    let task = tokio::spawn(read(registry.clone(), server.clone(), connection.clone(), sink, messages));
    Ok(Listening::Up { _second: Some(Second(task.abort_handle())) })
}

/// Whether messages arrive after this attempt to subscribe. Also tries the two commands of the scripts, since the scripts
/// ignore it if the user lacks a permission for them.
async fn is_up(server: &Server, subscribed: RedisResult<()>, channel: &str) -> Result<bool, Failure> {
    if let Err(error) = subscribed {
        return match trial::of_error(error.into(), channel) {
            Some(reason) => Err(failure_of(reason)),
            None => Ok(false),
        };
    }
    let count = try_out(server, &trial::numsub(channel), channel).await?;
    try_out(server, &trial::publish(channel), channel).await?;
    Ok(trial::is_counted(count))
}

async fn try_out(server: &Server, command: &Cmd, channel: &str) -> Result<Option<Value>, Failure> {
    let reply = server.command(command, None).await;
    trial::read(reply, channel).map_err(failure_of)
}

fn failure_of(reason: NoMessages) -> Failure {
    match reason {
        NoMessages::Refused(failure) => failure,
        NoMessages::Broken => Failure::new(FailureKind::Disconnected, "the connection for messages broke"),
    }
}

fn silent() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Reads a second connection until it ends. Then the connection for calls is replaced too, and with it the subscription.
async fn read(
    registry: Arc<Registry>,
    server: Arc<Server>,
    connection: Arc<Connection>,
    mut sink: PubSubSink,
    mut messages: PubSubStream,
) {
    loop {
        let tested = async {
            tokio::time::sleep(TEST).await;
            let answer = timeout(server.options.timeouts.read, sink.ping::<Value>()).await;
            answer.is_ok_and(|answer| !answer.is_err_and(|error| error.is_io_error())) // an error reply is an answer too
        };
        let mut tested = pin!(tested);
        loop {
            match select(messages.next(), tested.as_mut()).await {
                Either::Left((Some(message), _)) => {
                    registry.message(message.get_channel_name(), message.get_payload_bytes());
                }
                Either::Right((true, _)) => break,
                Either::Left((None, _)) | Either::Right((false, _)) => {
                    connection.outdate();
                    registry.disconnected(server.node());
                    return;
                }
            }
        }
    }
}
