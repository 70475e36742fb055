//! Sentinels. Each new connection asks them for the master, so a failover needs no intervention. They also publish when
//! another server becomes the master. The former master, if it still runs, may act as a master for ten more seconds;
//! all its grants in that time are lost.
//!
//! `redis::sentinel` asks without a timeout. With it, one sentinel that does not answer would delay every call.

use super::connect::{moved_to, open, with_options};
use super::subscription::{Broken, Subscription, TICK};
use crate::clock::machine_now;
use crate::error::failure::{Failure, FailureKind};
use crate::sync::lock;
use redis::{Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult, Value};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

pub(crate) struct Sentinels {
    sentinels: Vec<Client>,
    master: String,
    /// The settings of connections to the master, except its address.
    like: ConnectionInfo,
    /// The index of the sentinel that answered last. It is asked first.
    first: AtomicUsize,
    /// The address of the master, once known.
    known: Mutex<Option<(String, u16)>>,
    /// How many times the master changed.
    moves: AtomicU64,
}

/// The messages of the sentinels when a replica becomes the master. The sentinel that promoted it publishes the first,
/// then each sentinel the second.
pub(crate) const NEWS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// The time for an answer of a sentinel in the background thread. `PAUSE`: the pause after a sentinel that does not
/// answer.
const WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(1);

impl Sentinels {
    /// Stores these sentinels. A thread is subscribed to their messages for as long as they are used.
    pub(crate) fn new(
        sentinels: Vec<ConnectionInfo>,
        master: String,
        like: ConnectionInfo,
    ) -> Result<Arc<Sentinels>, Failure> {
        let clients = sentinels.into_iter().map(|info| {
            let client = Client::open(with_options(info).into_connection_info()?)?;
            Ok(client)
        });
        let sentinels = Arc::new(Sentinels {
            sentinels: clients.collect::<Result<_, Failure>>()?,
            master,
            like: with_options(like),
            first: AtomicUsize::new(0),
            known: Mutex::default(),
            moves: AtomicU64::new(0),
        });
        let listened_to = Arc::downgrade(&sentinels);
        let thread = std::thread::Builder::new().name("luagate-sentinel".to_owned());
        // Without this thread, a change of the master is noticed when the former master closes its connections.
        let _ = thread.spawn(move || listen(&listened_to));
        Ok(sentinels)
    }

    /// How many times the master changed.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Stores the address of the master.
    fn found(&self, address: &(String, u16)) {
        let mut known = lock(&self.known);
        if known.as_ref() != Some(address) {
            let moved = known.replace(address.clone()).is_some();
            self.moves.fetch_add(moved.into(), Ordering::AcqRel);
        }
    }

    /// The name of the master in the sentinels' configuration.
    pub(crate) fn master(&self) -> &str {
        &self.master
    }

    /// Connects to the master within `within`, if one of the sentinels reports it.
    pub(crate) fn connect(&self, within: Duration) -> Result<Connection, Failure> {
        let deadline = machine_now() + within;
        let count = self.sentinels.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut last = Failure::new(FailureKind::Unreachable, "no sentinel is known");
        for step in 0..count {
            let index = (first + step) % count;
            let Some(sentinel) = self.sentinels.get(index) else {
                continue;
            };
            // One share for each sentinel that may still be asked, and one for the master.
            let shares = u32::try_from(count - step).unwrap_or(u32::MAX).saturating_add(1);
            let share = deadline.saturating_duration_since(machine_now()) / shares;
            let found = self.ask(sentinel, share).and_then(|address| {
                let left = deadline.saturating_duration_since(machine_now());
                Ok((self.connect_to(&address, left)?, address))
            });
            match found {
                Ok((con, address)) => {
                    self.first.store(index, Ordering::Relaxed);
                    self.found(&address);
                    return Ok(con);
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// The addresses of the sentinels, and of the master as the first sentinel that answers reports it. Takes `within`
    /// at most.
    pub(crate) fn addresses(&self, within: Duration) -> Vec<ConnectionAddr> {
        let share = within / u32::try_from(self.sentinels.len()).unwrap_or(u32::MAX).max(1);
        let mut sentinels = self.sentinels.iter();
        let master = sentinels.find_map(|sentinel| self.ask(sentinel, share).ok());
        let master = master.map(|(host, port)| moved_to(self.like.addr(), host, port));
        let sentinels = self.sentinels.iter();
        let sentinels = sentinels.map(|client| client.get_connection_info().addr().clone());
        sentinels.chain(master).collect()
    }

    /// The master's address, as this sentinel reports it.
    fn ask(&self, sentinel: &Client, within: Duration) -> Result<(String, u16), Failure> {
        let mut con = open(sentinel, within)?;
        con.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        read_address(&self.master, address_of(&self.master).query(&mut con)?)
    }

    fn connect_to(&self, address: &(String, u16), within: Duration) -> Result<Connection, Failure> {
        let info = self.like.clone();
        let (host, port) = address.clone();
        let address = moved_to(info.addr(), host, port);
        let client = Client::open(info.set_addr(address).into_connection_info()?)?;
        let mut con = open(&client, within)?;
        con.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        // For a while after a failover a sentinel may report the former master.
        check_role(&self.master, redis::cmd("ROLE").query(&mut con))?;
        Ok(con)
    }
}

/// The command that asks a sentinel for the address of this master.
pub(crate) fn address_of(master: &str) -> Cmd {
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    command
}

/// Reads the reply to [`address_of`].
pub(crate) fn read_address(master: &str, address: Option<(String, u16)>) -> Result<(String, u16), Failure> {
    address.ok_or_else(|| {
        let text = format!("the sentinels do not know the master {master:?}");
        Failure::new(FailureKind::NotReady, text)
    })
}

/// Whether the reply to `ROLE` is that of a master. A user who may not run the command is believed.
pub(crate) fn check_role(master: &str, reply: RedisResult<Value>) -> Result<(), Failure> {
    match reply {
        Ok(Value::Array(parts)) if parts.first() == Some(&Value::BulkString(b"master".to_vec())) => Ok(()),
        Ok(_) => {
            let text = format!("the server that the sentinels report for {master:?} is not a master");
            Err(Failure::new(FailureKind::NotReady, text))
        }
        Err(error) => match Failure::from(error) {
            failure if failure.kind() == FailureKind::Permission => Ok(()),
            failure => Err(failure),
        },
    }
}

/// The loop of the thread. It subscribes to the sentinel that is asked first, since its messages announce its next
/// answers.
fn listen(sentinels: &Weak<Sentinels>) {
    while let Some(known) = sentinels.upgrade() {
        let index = known.first.load(Ordering::Relaxed);
        let Some(sentinel) = known.sentinels.get(index).cloned() else {
            return;
        };
        drop(known);
        let subscribed = hear(sentinels, index, &sentinel);
        if subscribed.is_err_and(|failure| failure.kind() == FailureKind::Permission) {
            return;
        }
        let Some(known) = sentinels.upgrade() else {
            return;
        };
        let next = (index + 1) % known.sentinels.len().max(1);
        let (set, as_set) = (Ordering::Relaxed, Ordering::Relaxed);
        if known.first.compare_exchange(index, next, set, as_set).is_ok() {
            drop(known);
            std::thread::sleep(PAUSE);
        }
    }
}

/// Receives messages from one sentinel, until its connection breaks or another one is asked first.
fn hear(sentinels: &Weak<Sentinels>, index: usize, sentinel: &Client) -> Result<(), Failure> {
    let mut con = open(sentinel, WITHIN)?;
    con.set_read_timeout(Some(WITHIN))?;
    redis::cmd("SUBSCRIBE").arg(&NEWS).exec(&mut con)?;
    let mut subscription = Subscription::on(con, WITHIN);
    let mut asks = true; // messages before the subscription were missed
    while let Some(known) = sentinels.upgrade() {
        if known.first.load(Ordering::Relaxed) != index {
            return Ok(());
        }
        if asks {
            known.found(&known.ask(sentinel, WITHIN)?);
        }
        drop(known);
        let message = subscription.next(machine_now() + TICK);
        asks = match message.and_then(|message| subscription.test().map(|()| message)) {
            Ok(message) => message.is_some(),
            Err(Broken) => return Ok(()),
        };
    }
    Ok(())
}
