//! Sentinels: they are asked for the master whenever a connection is made, so a failover needs nobody's attention.
//!
//! `redis::sentinel` asks without any timeout, so one sentinel that stands still would hold up every call.

use crate::failure::{Failure, FailureKind};
use crate::source::{moved_to, open, settled};
use redis::{Client, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Sentinels {
    sentinels: Vec<Client>,
    master: String,
    /// How connections to the master are made, but for its address.
    like: ConnectionInfo,
    /// Which sentinel answered last, and is asked first.
    first: AtomicUsize,
}

impl Sentinels {
    pub(crate) fn new(
        sentinels: Vec<ConnectionInfo>,
        master: String,
        like: ConnectionInfo,
    ) -> Result<Sentinels, Failure> {
        let clients = sentinels.into_iter().map(|info| {
            let client = Client::open(settled(info).into_connection_info()?)?;
            Ok(client)
        });
        Ok(Sentinels {
            sentinels: clients.collect::<Result<_, Failure>>()?,
            master,
            like: settled(like),
            first: AtomicUsize::new(0),
        })
    }

    /// What the sentinels call the master.
    pub(crate) fn master(&self) -> &str {
        &self.master
    }

    /// A connection to the master, found within `within` where one of the sentinels knows it.
    pub(crate) fn connect(&self, within: Duration) -> Result<Connection, Failure> {
        let deadline = Instant::now() + within;
        let count = self.sentinels.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut last = Failure::new(FailureKind::Unreachable, "no sentinel was named");
        for step in 0..count {
            let place = (first + step) % count;
            let Some(sentinel) = self.sentinels.get(place) else {
                continue;
            };
            // A share for each that may be asked yet, and one for the master.
            let shares = u32::try_from(count - step)
                .unwrap_or(u32::MAX)
                .saturating_add(1);
            let share = deadline.saturating_duration_since(Instant::now()) / shares;
            let found = self.ask(sentinel, share).and_then(|address| {
                self.connect_to(address, deadline.saturating_duration_since(Instant::now()))
            });
            match found {
                Ok(con) => {
                    self.first.store(place, Ordering::Relaxed);
                    return Ok(con);
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Where they are, and the master as the first of them that answers names it. Asks for `within` at most.
    pub(crate) fn addresses(&self, within: Duration) -> Vec<ConnectionAddr> {
        let share = within
            / u32::try_from(self.sentinels.len())
                .unwrap_or(u32::MAX)
                .max(1);
        let mut sentinels = self.sentinels.iter();
        let master = sentinels.find_map(|sentinel| self.ask(sentinel, share).ok());
        let master = master.map(|(host, port)| moved_to(self.like.addr(), host, port));
        let sentinels = self.sentinels.iter();
        let sentinels = sentinels.map(|client| client.get_connection_info().addr().clone());
        sentinels.chain(master).collect()
    }

    /// The master's address, as this sentinel has it.
    fn ask(&self, sentinel: &Client, within: Duration) -> Result<(String, u16), Failure> {
        let mut con = open(sentinel, within)?;
        con.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        let address: Option<(String, u16)> = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master)
            .query(&mut con)?;
        address.ok_or_else(|| {
            let text = format!("the sentinels know no master {:?}", self.master);
            Failure::new(FailureKind::NotReady, text)
        })
    }

    fn connect_to(&self, address: (String, u16), within: Duration) -> Result<Connection, Failure> {
        let info = self.like.clone();
        let address = moved_to(info.addr(), address.0, address.1);
        let client = Client::open(info.set_addr(address).into_connection_info()?)?;
        let mut con = open(&client, within)?;
        con.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        // For a while after a failover a sentinel may name the one that was master before.
        let role: Value = match redis::cmd("ROLE").query(&mut con) {
            Ok(role) => role,
            Err(error) => match Failure::from(error) {
                failure if failure.kind() == FailureKind::Permission => return Ok(con),
                failure => return Err(failure),
            },
        };
        match &role {
            Value::Array(parts)
                if parts.first() == Some(&Value::BulkString(b"master".to_vec())) =>
            {
                Ok(con)
            }
            _ => {
                let text = format!(
                    "what the sentinels call the master {:?} is none",
                    self.master
                );
                Err(Failure::new(FailureKind::NotReady, text))
            }
        }
    }
}
