//! The sentinels of a gate. Each new connection asks them for the master, so a failover needs no intervention. A thread
//! receives their messages about a new master.

use super::connection::{Connection, Receiver};
use super::connector::{ConnectOptions, Endpoint, connect_to};
use super::credentials::Source;
use super::mode::{MayBlock, in_own_thread};
use super::server::{Server, command};
use super::slot::Slot;
use crate::clock::machine_now;
use crate::error::failure::{Failure, FailureKind};
use crate::foreign::Foreign;
use crate::protocol::exchange::error_in;
use crate::protocol::routing::HostPort;
use crate::protocol::routing::sentinel::{
    self as protocol, Listen, Listener, NEWS, address_of, check_role, read_address,
};
use crate::sync::{lock, spawn};
use redis::{Cmd, ConnectionAddr, Value};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The time for an answer of a sentinel in the background thread.
const WITHIN: Duration = Duration::from_secs(2);

/// How often the thread looks whether the gate is still used.
const TICK: Duration = Duration::from_millis(250);

pub(crate) struct Sentinels {
    foreign: Foreign,
    sentinels: Vec<Endpoint>,
    master: String,
    /// The settings of connections to the master, except its address.
    like: Endpoint,
    state: Mutex<protocol::Sentinels>,
    /// The server whose connections end when another one becomes the master.
    server: OnceLock<Weak<Server>>,
}

impl Sentinels {
    /// Stores these sentinels. A thread is subscribed to their messages for as long as they are used.
    pub(super) fn new(sentinels: Vec<Endpoint>, master: String, like: Endpoint, foreign: &Foreign) -> Arc<Sentinels> {
        let state = Mutex::new(protocol::Sentinels::new(sentinels.len()));
        let foreign = foreign.clone();
        let sentinels = Arc::new(Sentinels { foreign, sentinels, master, like, state, server: OnceLock::new() });
        let listened_to = Arc::downgrade(&sentinels);
        // Without this thread, a change of the master is noticed when the former master closes its connections.
        let _ = spawn("luagate-sentinel", move || in_own_thread(|may| listen(&listened_to, may)));
        sentinels
    }

    /// The server that connects to the master.
    pub(super) fn serve(&self, server: &Arc<Server>) {
        let _ = self.server.set(Arc::downgrade(server));
    }

    pub(super) fn moves(&self) -> u64 {
        lock(&self.state).moves()
    }

    /// The function that returns the user and the password of connections to the master.
    pub(super) fn credentials(&self) -> Option<&Source> {
        self.like.credentials.as_ref()
    }

    /// The name of the master in the sentinels' configuration.
    pub(super) fn master(&self) -> &str {
        &self.master
    }

    /// The names of the sentinels and of the master.
    pub(super) fn look_ups(&self) -> u32 {
        u32::try_from(self.sentinels.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// The names of masters may have other addresses now.
    pub(super) fn forget_master(&self) {
        self.like.forget_names();
    }

    /// Connects to the master, if one of the sentinels reports it. Also returns how many times another
    /// server had become the master by then.
    pub(super) fn connect(&self, options: &mut ConnectOptions) -> Result<(Arc<Connection>, u64), Failure> {
        let mut search = lock(&self.state).search();
        while let Some((index, share)) = search.next(machine_now(), options.until) {
            let mut until = share;
            let asked = self.ask(index, &mut until, options.may);
            options.until += until.saturating_duration_since(share); // for look-ups of names
            let found = asked.and_then(|address| Ok((self.connect_to(&address, options)?, address)));
            match found {
                Ok((connection, address)) => {
                    let moves = lock(&self.state).connected(index, address);
                    return Ok((connection, moves));
                }
                Err(failure) => search.failure = failure,
            }
        }
        Err(search.failure)
    }

    /// The addresses of the sentinels, and of the master as the first sentinel that answers reports it. Takes `within`
    /// at most.
    pub(super) fn addresses(&self, within: Duration, may: MayBlock) -> Vec<ConnectionAddr> {
        let count = self.sentinels.len();
        let share = within / u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let master = (0..count).find_map(|index| self.ask(index, &mut (machine_now() + share), may).ok());
        let master = master.map(|(host, port)| self.like.moved_to(host, port).address().clone());
        self.sentinels.iter().map(|sentinel| sentinel.address().clone()).chain(master).collect()
    }

    /// The master's address, as this sentinel reports it. A look-up of its name moves `until`.
    fn ask(&self, index: usize, until: &mut Instant, may: MayBlock) -> Result<HostPort, Failure> {
        let connection = self.connect_to_sentinel(index, None, until, may)?;
        let reply = run(&connection, &address_of(&self.master), *until, may);
        connection.close(); // after a timeout its own thread would keep it
        let reply = reply?;
        let address = redis::from_redis_value(reply).map_err(|error| Failure::of(redis::RedisError::from(error)))?;
        read_address(&self.master, address)
    }

    fn connect_to_sentinel(
        &self,
        index: usize,
        receiver: Option<Arc<dyn Receiver>>,
        until: &mut Instant,
        may: MayBlock,
    ) -> Result<Arc<Connection>, Failure> {
        let unknown = || Failure::new(FailureKind::Other, "the sentinel is unknown");
        let sentinel = self.sentinels.get(index).ok_or_else(unknown)?;
        let foreign = self.foreign.clone();
        let mut options = ConnectOptions { foreign, receiver, read_timeout: WITHIN, until: *until, may };
        let connected = connect_to(sentinel, &mut options);
        *until = options.until;
        connected
    }

    fn connect_to(&self, (host, port): &HostPort, options: &mut ConnectOptions) -> Result<Arc<Connection>, Failure> {
        let connection = connect_to(&self.like.moved_to(host.clone(), *port), options)?;
        // For a while after a failover a sentinel may report the former master.
        let role = command(&connection, &redis::cmd("ROLE"), options.until, options.may);
        let checked = role.and_then(|role| check_role(&self.master, error_in(Ok(role))));
        checked.inspect_err(|_| connection.close())?;
        Ok(connection)
    }

    /// Stores what a sentinel reports. If another server has become the master, the connections to the former one end.
    fn told(&self, listener: &mut Listener, address: HostPort) {
        let mut state = lock(&self.state);
        let before = state.moves();
        listener.told(&mut state, address);
        let has_moved = state.moves() != before;
        drop(state);
        if has_moved && let Some(server) = self.server.get().and_then(Weak::upgrade) {
            server.disconnect();
        }
    }
}

/// The reply to a command. An error of the server is a failure.
fn run(connection: &Arc<Connection>, cmd: &Cmd, until: Instant, may: MayBlock) -> Result<Value, Failure> {
    let reply = command(connection, cmd, until, may)?;
    error_in(Ok(reply)).map_err(Failure::of)
}

/// Notices messages of a sentinel.
impl Receiver for Slot<bool> {
    fn message(&self, _: &[u8], _: &[u8]) {
        self.change(|heard| *heard = true);
    }

    fn ended(&self) {
        self.change(|heard| *heard = true);
    }
}

/// A subscription to the messages of a sentinel.
struct Subscription {
    connection: Arc<Connection>,
    news: Arc<Slot<bool>>,
}

impl Subscription {
    fn begin(sentinels: &Sentinels, index: usize, may: MayBlock) -> Result<Subscription, Failure> {
        let news = Arc::new(Slot::of_machine(&sentinels.foreign, false));
        let mut until = machine_now() + WITHIN;
        let connection = sentinels.connect_to_sentinel(index, Some(news.clone()), &mut until, may)?;
        let subscription = Subscription { connection, news };
        for channel in NEWS {
            run(&subscription.connection, redis::cmd("SUBSCRIBE").arg(channel), until, may)?;
        }
        Ok(subscription)
    }

    /// Whether a message came. An error: the subscription has ended.
    fn wait(&self, may: MayBlock) -> Result<bool, Failure> {
        let heard = |heard: &mut bool| std::mem::take(heard).then_some(());
        let came = self.connection.wait_for_message(&self.news, machine_now() + TICK, heard, may).is_some();
        if self.connection.has_ended() {
            Err(Failure::new(FailureKind::Disconnected, "the subscription has ended"))
        } else {
            Ok(came)
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.connection.close();
    }
}

/// The loop of the thread.
fn listen(sentinels: &Weak<Sentinels>, may: MayBlock) {
    let mut listener = Listener::default();
    let mut subscription: Option<Subscription> = None;
    while let Some(known) = sentinels.upgrade() {
        let next = listener.next(&lock(&known.state));
        let done = match next {
            Listen::Stop => return,
            Listen::Pause(pause) => {
                drop(known);
                std::thread::sleep(pause);
                continue;
            }
            Listen::Subscribe(index) => Subscription::begin(&known, index, may).map(|begun| {
                subscription = Some(begun);
                listener.heard();
            }),
            Listen::Ask(index) => {
                known.ask(index, &mut (machine_now() + WITHIN), may).map(|address| known.told(&mut listener, address))
            }
            Listen::Wait => {
                drop(known);
                let waited = subscription.as_ref().map_or(Ok(true), |subscription| subscription.wait(may));
                waited.map(|came| {
                    if came {
                        listener.heard();
                    }
                })
            }
        };
        if let Err(failure) = done
            && let Some(known) = sentinels.upgrade()
        {
            subscription = None;
            listener.failed(&mut lock(&known.state), failure.kind());
        }
    }
}
