//! The sentinels of a gate. Each new connection asks them for the master, so a failover needs no
//! intervention.

use super::connection::{Connection, Receiver};
use super::credentials::Source;
use super::endpoint::{ConnectOptions, Endpoint, command, connect_to};
use super::mode::MayBlock;
use crate::clock::machine_now;
use crate::foreign::Foreign;
use crate::sync::lock;
use luagate_core::exchange::error_in;
use luagate_core::failure::Failure;
use luagate_core::kind::FailureKind;
use luagate_core::routing::HostPort;
use luagate_core::routing::sentinel::{
    Listen, Listener, SentinelState, address_of, check_role, read_address,
};
use luagate_core::value::Value;
use redis::ConnectionAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The time for an answer of a sentinel in the thread that receives its messages.
pub(super) const WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Sentinels {
    foreign: Foreign,
    sentinels: Vec<Endpoint>,
    master: String,
    /// The settings of connections to the master, except its address.
    like: Endpoint,
    state: Mutex<SentinelState>,
}

impl Sentinels {
    pub(super) fn new(
        sentinels: Vec<Endpoint>,
        master: String,
        like: Endpoint,
        foreign: &Foreign,
    ) -> Sentinels {
        let state = Mutex::new(SentinelState::new(sentinels.len()));
        Sentinels { foreign: foreign.clone(), sentinels, master, like, state }
    }

    pub(super) fn foreign(&self) -> &Foreign {
        &self.foreign
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

    /// The addresses of the sentinels, and of the master as the first sentinel that answers reports it. Takes
    /// `within` at most.
    pub(super) fn addresses(&self, within: Duration, may: MayBlock) -> Vec<ConnectionAddr> {
        let count = self.sentinels.len();
        let share = within / u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let master = (0..count).find_map(|index| self.ask(index, &mut (machine_now() + share), may).ok());
        let master = master.map(|(host, port)| self.like.moved_to(host, port).address().clone());
        self.sentinels.iter().map(|sentinel| sentinel.address().clone()).chain(master).collect()
    }

    /// The master's address, as this sentinel reports it. A look-up of its name moves `until`.
    pub(super) fn ask(&self, index: usize, until: &mut Instant, may: MayBlock) -> Result<HostPort, Failure> {
        let connection = self.connect_to_sentinel(index, None, until, may)?;
        let reply = run(&connection, &address_of(&self.master), *until, may);
        connection.close(); // after a timeout its own thread would keep it
        read_address(&self.master, reply?)
    }

    pub(super) fn connect_to_sentinel(
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

    fn connect_to(
        &self,
        (host, port): &HostPort,
        options: &mut ConnectOptions,
    ) -> Result<Arc<Connection>, Failure> {
        let connection = connect_to(&self.like.moved_to(host.clone(), *port), options)?;
        // For a while after a failover a sentinel may report the former master.
        let role = command(&connection, &[b"ROLE"], options.until, options.may);
        let checked = role.and_then(|role| check_role(&self.master, error_in(Ok(role))));
        checked.inspect_err(|_| connection.close())?;
        Ok(connection)
    }

    /// Stores what a sentinel reports. Returns whether another server has become the master.
    pub(super) fn told(&self, listener: &mut Listener, address: HostPort) -> bool {
        let mut state = lock(&self.state);
        let before = state.moves();
        listener.told(&mut state, address);
        state.moves() != before
    }

    /// The next step of the thread that receives their messages.
    pub(super) fn next(&self, listener: &mut Listener) -> Listen {
        listener.next(&lock(&self.state))
    }

    /// A sentinel has failed that thread.
    pub(super) fn failed(&self, listener: &mut Listener, failure: &Failure) {
        listener.failed(&mut lock(&self.state), failure.kind());
    }
}

/// The reply to a command. An error of the server is a failure.
pub(super) fn run(
    connection: &Arc<Connection>,
    words: &[&[u8]],
    until: Instant,
    may: MayBlock,
) -> Result<Value, Failure> {
    let reply = command(connection, words, until, may)?;
    error_in(Ok(reply))
}
