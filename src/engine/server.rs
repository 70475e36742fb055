//! One server of a gate, and its connections, which are made again when needed:
//!
//! - one for calls, of all threads and tasks,
//! - one for messages, while somebody waits in line. So a flood of messages delays no reply, and a server
//!   that ends the subscription ends no call,
//! - one for calls that replicas must confirm, if the gate requires that: `WAIT` blocks a connection.

use super::connection::{Connection, Receiver};
use super::connector::Connector;
use super::counters::Counts;
use super::credentials::Source;
use super::ending::no_thread;
use super::endpoint::{ConnectOptions, command, first};
use super::mode::{MayBlock, Mode, block_with, in_own_thread};
use super::names::LOOK_UP;
use super::slot::Slot;
use super::worker::Worker;
use crate::clock::{Clock, machine_now, since};
use crate::foreign::Foreign;
use crate::sync::spawn;
use crate::trace;
use luagate_core::failure::{CallError, Failure};
use luagate_core::id;
use luagate_core::kind::FailureKind;
use luagate_core::resp;
use luagate_core::routing::NodeId;
use luagate_core::value::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// After a server could not be reached, calls fail for this long without another attempt.
pub(crate) const SAME_FAILURE: Duration = Duration::from_millis(5);

/// How much longer than an attempt to connect a caller waits for it, so that it gets the failure of the
/// attempt.
const MARGIN: Duration = Duration::from_millis(50);

/// The timeouts of a gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    /// The maximum time to wait for a reply.
    pub(crate) read: Duration,
}

impl Timeouts {
    /// The maximum time for which a caller waits for a connection.
    pub(crate) fn to_connect(self) -> Duration {
        self.connect + MARGIN
    }
}

/// The settings and the parts of a gate that all of its servers share.
#[derive(Clone)]
pub(crate) struct ServerOptions {
    pub(crate) foreign: Foreign,
    pub(crate) clock: Clock,
    /// The gate's own thread.
    pub(crate) worker: Worker,
    pub(crate) counts: Arc<Counts>,
    pub(crate) timeouts: Timeouts,
    /// Gets the messages of all servers.
    pub(crate) receiver: Arc<dyn Receiver>,
    /// The start of all keys and channels.
    pub(crate) prefix: Arc<str>,
}

pub(crate) struct Server {
    pub(crate) options: ServerOptions,
    pub(crate) node: NodeId,
    pub(super) connector: Connector,
    /// The channel on which this gate receives the messages of this server.
    pub(crate) channel: String,
    calls: Slot<KeptConnection>,
    messages: Slot<KeptConnection>,
    confirmations: Slot<KeptConnection>,
    /// It is not a master of the cluster any more.
    is_retired: AtomicBool,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Calls,
    Messages,
    /// Calls that replicas must confirm.
    Confirmations,
}

/// A connection that is made again when it is needed.
#[derive(Default)]
struct KeptConnection {
    current: Option<Current>,
    is_connecting: bool,
    /// How many attempts to connect have ended.
    attempts: u64,
    /// The failure of the last one, and when it ended.
    failure: Option<(Failure, Instant)>,
}

#[derive(Clone)]
struct Current {
    /// `None`: messages do not arrive, because of the server or a proxy. Waiters only ask again.
    connection: Option<Arc<Connection>>,
    /// How many times another server had replaced this one by then.
    moves: u64,
}

/// The next step of a caller that needs a connection.
enum Need {
    Found(Option<Arc<Connection>>),
    Failed(Failure),
    Connect,
}

impl KeptConnection {
    fn usable(&self, moves: u64) -> Option<&Current> {
        let has_ended =
            |current: &Current| current.connection.as_ref().is_some_and(|connection| connection.has_ended());
        self.current.as_ref().filter(|current| current.moves == moves && !has_ended(current))
    }

    /// The failure of an attempt that has just ended, or has ended since the caller began to wait.
    fn failed_since(&self, attempts: u64) -> Option<Failure> {
        let (failure, at) = self.failure.as_ref()?;
        let is_same = self.attempts > attempts || failure.is_passing() && since(*at) < SAME_FAILURE;
        is_same.then(|| failure.clone())
    }

    /// Whether this is the first attempt since an earlier connection has ended.
    fn has_lost_connection(&self) -> bool {
        self.current.is_some() && self.failure.is_none()
    }

    /// A connection was made. Returns the former one.
    fn made(&mut self, current: Current) -> Option<Current> {
        (self.is_connecting, self.failure) = (false, None);
        self.attempts += 1;
        self.current.replace(current)
    }

    fn failed(&mut self, failure: Failure) {
        self.is_connecting = false;
        self.attempts += 1;
        self.failure = Some((failure, machine_now()));
    }

    /// `None`: wait, since a thread connects.
    fn need(&mut self, moves: u64, attempts: u64) -> Option<Need> {
        if let Some(usable) = self.usable(moves) {
            return Some(Need::Found(usable.connection.clone()));
        }
        if let Some(failure) = self.failed_since(attempts) {
            return Some(Need::Failed(failure));
        }
        (!std::mem::replace(&mut self.is_connecting, true)).then_some(Need::Connect)
    }
}

impl Server {
    /// Does not connect yet.
    pub(crate) fn new(options: ServerOptions, node: NodeId, connector: Connector) -> Arc<Server> {
        let kept = || Slot::of_machine(&options.foreign, KeptConnection::default());
        Arc::new(Server {
            calls: kept(),
            messages: kept(),
            confirmations: kept(),
            channel: id::new_inbox(&options.prefix, Uuid::new_v4()),
            options,
            node,
            connector,
            is_retired: AtomicBool::new(false),
        })
    }

    /// The address, or the name of the master, without user and password.
    pub(crate) fn address(&self) -> String {
        self.connector.address()
    }

    /// Whether an earlier wait used this server. Then its subscription exists or is being made.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.messages.look(|kept| kept.is_connecting || kept.current.is_some())
    }

    /// Sends one plain command. Waits until `latest` at most, on this machine's clock, and not longer than
    /// the read timeout for the reply. An error of the server is a value.
    pub(crate) async fn command(
        self: &Arc<Server>,
        command: Vec<u8>,
        latest: Instant,
        mode: Mode,
    ) -> Result<Value, CallError> {
        let connection = self.connection(Purpose::Calls, latest, mode).await.map_err(CallError::Failed)?;
        let latest = latest.min(machine_now() + self.options.timeouts.read);
        first(connection.exchange(command, 1, latest, mode).await?)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Whether this node of a cluster is not a master. Then it needs no connection.
    pub(super) fn retire(&self, is_retired: bool) {
        if !self.is_retired.swap(is_retired, Ordering::Relaxed) && is_retired {
            self.disconnect();
        }
    }

    fn kept(&self, purpose: Purpose) -> &Slot<KeptConnection> {
        match purpose {
            Purpose::Calls => &self.calls,
            Purpose::Messages => &self.messages,
            Purpose::Confirmations => &self.confirmations,
        }
    }

    /// Ends all connections. The next call connects again.
    pub(super) fn disconnect(&self) {
        for purpose in [Purpose::Calls, Purpose::Messages, Purpose::Confirmations] {
            let connection = self.kept(purpose).look(|kept| kept.current.as_ref()?.connection.clone());
            connection.inspect(|connection| connection.close()); // without the lock
        }
    }

    /// A connection, if it works, and its number: each new one has another. Does not connect.
    pub(super) fn current(&self, purpose: Purpose) -> Option<(Arc<Connection>, u64)> {
        let current = |kept: &mut KeptConnection| {
            Some((kept.usable(self.connector.moves())?.connection.clone()?, kept.attempts))
        };
        self.kept(purpose).look(current)
    }

    /// The number of the connection, if it works. Finds out, without a round trip, whether the server has
    /// closed it.
    pub(super) fn look(&self, purpose: Purpose) -> Option<u64> {
        self.current(purpose)?.0.look_if_idle();
        self.current(purpose).map(|(_, number)| number)
    }

    /// A connection that works, made by `latest` on this machine's clock.
    pub(super) async fn connection(
        self: &Arc<Server>,
        purpose: Purpose,
        latest: Instant,
        mode: Mode,
    ) -> Result<Arc<Connection>, Failure> {
        let none = || Failure::new(FailureKind::Other, "the connection is only for messages");
        self.reach(purpose, latest, mode).await?.ok_or_else(none)
    }

    /// The first connection. Unlike a call, it also waits while names are looked up slowly.
    pub(super) async fn open(self: &Arc<Server>, mode: Mode) -> Result<Arc<Connection>, Failure> {
        let within = self.options.timeouts.to_connect();
        let connected = self.connection(Purpose::Calls, machine_now() + within, mode).await;
        if connected.is_ok() || !self.is_connecting() || self.asks_for_credentials() {
            return connected;
        }
        let latest = machine_now() + LOOK_UP * self.connector.look_ups() + within;
        self.connection(Purpose::Calls, latest, mode).await
    }

    /// Whether an attempt to connect is under way.
    pub(super) fn is_connecting(&self) -> bool {
        self.calls.look(|kept| kept.is_connecting)
    }

    fn asks_for_credentials(&self) -> bool {
        self.connector.credentials().is_some_and(Source::is_running)
    }

    /// As `connection`. `None`: messages do not arrive, because of the server or a proxy.
    ///
    /// A thread of the gate connects. All callers wait for it.
    pub(crate) async fn reach(
        self: &Arc<Server>,
        purpose: Purpose,
        latest: Instant,
        mode: Mode,
    ) -> Result<Option<Arc<Connection>>, Failure> {
        let look = |kept: &mut KeptConnection| (kept.usable(self.connector.moves()).cloned(), kept.attempts);
        match self.kept(purpose).look(look) {
            (Some(usable), _) => Ok(usable.connection),
            (None, attempts) => Box::pin(self.wait_for(purpose, attempts, latest, mode)).await, // keeps futures small
        }
    }

    /// Waits for a connection that is made. `attempts`: how many had ended when the caller began to wait.
    async fn wait_for(
        self: &Arc<Server>,
        purpose: Purpose,
        attempts: u64,
        latest: Instant,
        mode: Mode,
    ) -> Result<Option<Arc<Connection>>, Failure> {
        let ServerOptions { clock, worker, .. } = &self.options;
        loop {
            let need = |kept: &mut KeptConnection| kept.need(self.connector.moves(), attempts);
            let waits = self.kept(purpose).until(Some(latest), mode, need);
            match worker.limited(clock.at_machine_time(latest), mode, waits).await.flatten() {
                Some(Need::Found(connection)) => return Ok(connection),
                Some(Need::Failed(failure)) => return Err(failure),
                Some(Need::Connect) => self.connect_in_thread(purpose),
                None if machine_now() < latest => {} // a test has moved the gate's clock
                None => return Err(Failure::new(FailureKind::Unreachable, self.why_late())),
            }
        }
    }

    /// The reason why a caller has waited for a connection in vain.
    fn why_late(&self) -> &'static str {
        if self.asks_for_credentials() {
            "no connection in time: the function for credentials has not returned"
        } else {
            "no connection in time"
        }
    }

    /// Starts a thread that connects. Then it is the connection's own thread.
    fn connect_in_thread(self: &Arc<Server>, purpose: Purpose) {
        let server = self.clone();
        let connects = move |may| {
            let made = server.connect(purpose, may);
            drop(server);
            if let Some(connection) = made {
                connection.serve();
            }
        };
        if !spawn("luagate-io", || in_own_thread(connects)) {
            self.kept(purpose).change(|kept| kept.failed(no_thread()));
        }
    }

    /// Connects once, and tells all that wait for it. `is_connecting` is set.
    fn connect(self: &Arc<Server>, purpose: Purpose, may: MayBlock) -> Option<Arc<Connection>> {
        let kept = self.kept(purpose);
        if kept.look(|kept| kept.has_lost_connection()) {
            self.connector.forget_address(); // another server may have it now
        }
        let current = match self.make(purpose, may) {
            Ok(current) => current,
            Err(failure) => {
                kept.change(|kept| kept.failed(failure));
                return None;
            }
        };
        let connection = current.connection.clone();
        let former = kept.change(|kept| {
            let former = kept.made(current).and_then(|former| Some((former.connection?, former.moves)));
            if former.is_some() {
                self.options.counts.reconnects.add_one(); // before any caller has the new connection
            }
            former
        });
        if let Some((former, moves)) = former {
            if moves != self.connector.moves() {
                former.close(); // to a former master. A silent connection stays, for the releases behind its calls
            }
            let what = match purpose {
                Purpose::Messages => "a subscription was re-established",
                Purpose::Calls | Purpose::Confirmations => "a connection was replaced",
            };
            trace::reconnected(&self.options.foreign, what, self.address());
        }
        connection
    }

    fn make(self: &Arc<Server>, purpose: Purpose, may: MayBlock) -> Result<Current, Failure> {
        let ServerOptions { foreign, timeouts, receiver, .. } = &self.options;
        let mut options = ConnectOptions {
            foreign: foreign.clone(),
            receiver: (purpose == Purpose::Messages).then(|| receiver.clone()),
            read_timeout: timeouts.read,
            until: machine_now() + timeouts.connect,
            may,
        };
        let (made, moves) = self.connector.connect(&mut options)?;
        let is_useful = match purpose {
            // After a timeout it would stay open.
            Purpose::Messages => subscribe(self, &made, options.until, may).inspect_err(|_| made.close())?,
            Purpose::Calls | Purpose::Confirmations => true,
        };
        Ok(Current { connection: is_useful.then_some(made), moves })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.options.foreign.is_own_process() {
            self.disconnect();
        }
    }
}

/// Subscribes this connection to the channel of the gate.
///
/// Behind some proxies the server accepts the command but does not count the subscription, and the scripts
/// would see no subscriber. The two commands of the scripts are tried too, since the scripts ignore it if the
/// user lacks a permission for them.
///
/// `false`: messages do not arrive, because of the server or a proxy.
fn subscribe(
    server: &Arc<Server>,
    connection: &Arc<Connection>,
    until: Instant,
    may: MayBlock,
) -> Result<bool, Failure> {
    let channel = server.channel.as_bytes();
    let on_server = |words: &[&[u8]]| {
        let sent = block_with(may, |mode| server.command(resp::command(words), until, mode));
        reply(sent.map_err(CallError::into_failure))
    };
    let subscribed = command(connection, &[b"SUBSCRIBE", channel], until, may);
    let counted = match reply(subscribed)? {
        Some(_) => on_server(&[b"PUBSUB", b"NUMSUB", channel])?,
        None => None,
    };
    // A message that is not one of luagate, so every client ignores it.
    on_server(&[b"PUBLISH", channel, b""])?;
    if is_counted(counted) {
        return Ok(true);
    }
    // A subscription that has just broken is not counted either.
    reply(command(connection, &[b"PING"], until, may))?;
    connection.close();
    Ok(false)
}

/// Whether the reply to `PUBSUB NUMSUB` counts the subscription.
fn is_counted(reply: Option<Value>) -> bool {
    let Some(Value::Array(parts)) = reply else { return false };
    matches!(parts.as_slice(), [_, Value::Int(1..)])
}

/// The reply to one of the commands. `None`: the server, or a proxy ahead of it, does not know the command.
fn reply(reply: Result<Value, Failure>) -> Result<Option<Value>, Failure> {
    let failure = match reply? {
        Value::Error(refusal) => Failure::refused(refusal),
        reply => return Ok(Some(reply)),
    };
    let is_for_caller =
        failure.kind() == FailureKind::Permission || failure.is_passing() || failure.ends_connection();
    if is_for_caller { Err(failure) } else { Ok(None) }
}
