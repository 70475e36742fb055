//! Sentinels. Each new connection asks them for the master, so a failover needs no intervention. They also publish when
//! another server becomes the master. The former master, if it still runs, may act as a master for ten more seconds;
//! all its grants in that time are lost.

use super::connector::{Push, client, open};
use crate::clock::machine_now;
use crate::error::failure::{Failure, FailureKind};
use crate::sync::lock;
use crate::transport::connect::{moved_to, with_options};
use crate::transport::sentinel::{NEWS, address_of, check_role, read_address};
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use tokio::time::timeout;

pub(super) struct Sentinels {
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
    /// The background task.
    listens: OnceLock<AbortHandle>,
}

/// The time for an answer of a sentinel in the background task.
const WITHIN: Duration = Duration::from_secs(2);

/// The pause after a sentinel that does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// The interval at which the background task tests its connection, and checks which sentinel is asked first.
const TEST: Duration = Duration::from_secs(5);

impl Sentinels {
    /// Stores these sentinels. A task is subscribed to their messages for as long as they are used.
    pub(super) fn new(
        sentinels: Vec<ConnectionInfo>,
        master: String,
        like: ConnectionInfo,
    ) -> Result<Arc<Sentinels>, Failure> {
        let clients = sentinels.into_iter().map(|info| Ok(Client::open(with_options(info).into_connection_info()?)?));
        let sentinels = Arc::new(Sentinels {
            sentinels: clients.collect::<Result<_, Failure>>()?,
            master,
            like: with_options(like),
            first: AtomicUsize::new(0),
            known: Mutex::default(),
            moves: AtomicU64::new(0),
            listens: OnceLock::new(),
        });
        let task = tokio::spawn(listen(Arc::downgrade(&sentinels)));
        let _ = sentinels.listens.set(task.abort_handle());
        Ok(sentinels)
    }

    /// How many times the master changed.
    pub(super) fn moves(&self) -> u64 {
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
    pub(super) fn master(&self) -> &str {
        &self.master
    }

    /// Connects to the master within `within`, if one of the sentinels reports it.
    pub(super) async fn connect(&self, push: Option<Push>, within: Duration) -> Result<MultiplexedConnection, Failure> {
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
            let share = left(deadline) / shares;
            match self.connect_by(sentinel, push.clone(), share, deadline).await {
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

    /// Connects to the master that this sentinel reports.
    async fn connect_by(
        &self,
        sentinel: &Client,
        push: Option<Push>,
        share: Duration,
        deadline: Instant,
    ) -> Result<(MultiplexedConnection, (String, u16)), Failure> {
        let address = self.ask(sentinel, share).await?;
        let protocol = if push.is_some() { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let client = client(&self.at(&address), protocol)?;
        let mut con = open(&client, push, left(deadline)).await?;
        // For a while after a failover a sentinel may report the former master.
        let role = timeout(left(deadline), redis::cmd("ROLE").query_async(&mut con)).await;
        let role = role.map_err(|_| Failure::new(FailureKind::Unreachable, "the master did not report its role"))?;
        check_role(&self.master, role)?;
        Ok((con, address))
    }

    fn at(&self, (host, port): &(String, u16)) -> ConnectionInfo {
        let info = self.like.clone();
        let address = moved_to(info.addr(), host.clone(), *port);
        info.set_addr(address)
    }

    /// A client for the master that the first sentinel that answers reports.
    pub(super) async fn client(&self, within: Duration) -> Result<Client, Failure> {
        let address = self.address(within).await?;
        client(&self.at(&address), ProtocolVersion::RESP2)
    }

    async fn address(&self, within: Duration) -> Result<(String, u16), Failure> {
        let share = within / u32::try_from(self.sentinels.len()).unwrap_or(u32::MAX).max(1);
        let mut last = Failure::new(FailureKind::Unreachable, "no sentinel is known");
        for sentinel in &self.sentinels {
            match self.ask(sentinel, share).await {
                Ok(address) => return Ok(address),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// The addresses of the sentinels, and of the master as the first sentinel that answers reports it. Takes `within`
    /// at most.
    pub(super) async fn addresses(&self, within: Duration) -> Vec<ConnectionAddr> {
        let master = self.address(within).await.ok();
        let master = master.map(|(host, port)| moved_to(self.like.addr(), host, port));
        let sentinels = self.sentinels.iter();
        let sentinels = sentinels.map(|client| client.get_connection_info().addr().clone());
        sentinels.chain(master).collect()
    }

    /// The master's address, as this sentinel reports it.
    async fn ask(&self, sentinel: &Client, within: Duration) -> Result<(String, u16), Failure> {
        let deadline = machine_now() + within;
        let mut con = open(sentinel, None, within).await?;
        let asked = timeout(left(deadline), address_of(&self.master).query_async(&mut con)).await;
        let address = asked.map_err(|_| Failure::new(FailureKind::Unreachable, "a sentinel did not answer"))?;
        read_address(&self.master, address?)
    }
}

impl Drop for Sentinels {
    /// Closes the connection of the task at once.
    fn drop(&mut self) {
        if let Some(task) = self.listens.get() {
            task.abort();
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(machine_now())
}

/// The loop of the task. It subscribes to the sentinel that is asked first, since its messages announce its next
/// answers.
async fn listen(sentinels: Weak<Sentinels>) {
    while let Some(known) = sentinels.upgrade() {
        let index = known.first.load(Ordering::Relaxed);
        let Some(sentinel) = known.sentinels.get(index).cloned() else {
            return;
        };
        drop(known);
        let subscribed = hear(&sentinels, index, &sentinel).await;
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
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Receives messages from one sentinel, until its connection breaks or another one is asked first.
async fn hear(sentinels: &Weak<Sentinels>, index: usize, sentinel: &Client) -> Result<(), Failure> {
    let silent = || Failure::new(FailureKind::TimedOut, "a sentinel did not answer");
    let connected = timeout(WITHIN, sentinel.get_async_pubsub()).await;
    let mut pubsub = connected.map_err(|_| silent())??;
    timeout(WITHIN, pubsub.subscribe(&NEWS)).await.map_err(|_| silent())??;
    let (mut sink, mut messages) = pubsub.split();
    let mut asks = true; // messages before the subscription were missed
    while let Some(known) = sentinels.upgrade() {
        if known.first.load(Ordering::Relaxed) != index {
            return Ok(());
        }
        if asks {
            known.found(&known.ask(sentinel, WITHIN).await?);
        }
        drop(known);
        asks = match timeout(TEST, messages.next()).await {
            Ok(Some(_)) => true,
            Ok(None) => return Ok(()),
            Err(_) => {
                // A repeated subscription changes nothing. Unlike `PING`, it needs no other permission.
                timeout(WITHIN, sink.subscribe(&NEWS)).await.map_err(|_| silent())??;
                false
            }
        };
    }
    Ok(())
}
