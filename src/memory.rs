//! A server in this process, so that unit tests need no Redis. Needs the feature `memory`.
//!
//! The program receives a [`Gate`], and its tests pass one from [`Gate::in_memory`]. Everything works as on a
//! server: the same client calls the same scripts, through sockets of the loopback interface. Only the clock
//! differs. It runs like the clock of the machine, and [`Memory::advance`] moves it ahead. Therefore a test
//! does not have to wait for an hour to test an hour.
//!
//! ```toml
//! [dev-dependencies]
//! luagate = { version = "0.1", features = ["memory"] }
//! ```
//!
//! ```
//! use luagate::{Gate, Lease, errors::TryAcquireError};
//! use std::time::Duration;
//!
//! /// The program: at most three downloads at a time, each for at most ten minutes.
//! fn start_download(gate: &Gate) -> Result<luagate::Permit, TryAcquireError> {
//!     let downloads = gate.semaphore("downloads", 3).lease(Lease::fixed(Duration::from_secs(600)));
//!     downloads.try_acquire()
//! }
//!
//! # fn main() -> Result<(), luagate::Error> {
//! // #[test]
//! // fn fourth_download_is_denied_until_a_lease_ends()
//! let (gate, memory) = Gate::in_memory()?;
//! let first = start_download(&gate)?;
//! memory.advance(Duration::from_secs(60));
//! let second = start_download(&gate)?;
//! let other_process = memory.gate()?;
//! let third = start_download(&other_process)?;
//! match start_download(&gate) {
//!     Err(TryAcquireError::Denied(denied)) => {
//!         let minutes = denied.next_expiry.map(|left| left.as_secs().div_ceil(60));
//!         assert_eq!(minutes, Some(9)); // when the first one ends
//!     }
//!     other => panic!("a fourth download: {other:?}"),
//! }
//! memory.advance(Duration::from_secs(540));
//! assert!(first.is_lost() && !second.is_lost() && !third.is_lost());
//! let fourth = start_download(&gate)?;
//! assert!(fourth.fence() > third.fence());
//! # Ok(())
//! # }
//! ```
//!
//! Each [`Memory`] has its own server, clock and gates, so tests can run in parallel. Its threads and sockets
//! are closed when the last handle and the last gate are dropped.
//!
//! The server stores nothing on disk, and has no replicas and no cluster. It implements only the commands
//! that luagate's scripts use, and a few others. [`Server`] is the same server without sockets and threads,
//! for simulations.

/// The server without sockets and threads, for simulations. Unit tests of a program use [`Memory`].
///
/// All functions of [`scripts`](crate::scripts) work on it:
///
/// ```
/// use luagate::scripts::{Keys, semaphore::{self, AcquireAnswer, Ask}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut server = luagate::memory::Server::new()?;
/// let keys = Keys::semaphore("luagate", "market")?;
/// let ask = Ask { id: "ann", limit: 1, lease_ms: 1_000, ..Ask::default() };
/// let answer = semaphore::acquire(&mut server, &keys, &ask)?;
/// assert!(matches!(answer, AcquireAnswer::Granted(..)));
/// # Ok(())
/// # }
/// ```
pub use luagate_memory::Server;

pub use luagate_memory::Store;

use crate::clock::{Clock, Time};
use crate::engine::address::Address;
use crate::error::received::received;
use crate::error::{CallError, FailureKind};
use crate::gate::{Gate, GateBuilder};
use luagate_core::failure::Failure;
use luagate_memory::Listener;
use redis::{Client, Connection};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

impl Gate {
    /// Opens a gate on a server in this process, for the unit tests of a program. No other program uses that
    /// server, and a test moves its clock. Needs the feature `memory`. See the module
    /// [`memory`](crate::memory).
    ///
    /// # Errors
    /// [`CallError::Failed`] when the system has no free port on the loopback interface, or no thread.
    pub fn in_memory() -> Result<(Gate, Memory), CallError> {
        let memory = Memory::new()?;
        Ok((memory.gate()?, memory))
    }

    /// As [`in_memory`](Gate::in_memory), without blocking. Moving the clock blocks until tasks have done
    /// what is due, so use an executor of several threads, and call [`Memory::advance`] outside of them, for
    /// example in `spawn_blocking` of tokio.
    ///
    /// # Errors
    /// As [`in_memory`](Gate::in_memory).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays open.
    pub async fn in_memory_async() -> Result<(Gate, Memory), CallError> {
        let memory = Memory::new()?;
        Ok((memory.builder().open_async().await?, memory))
    }
}

/// A server in this process, its clock, which a test moves, and all gates on it. Clones share the server and
/// the clock.
///
/// See [the module](self) for an example.
#[derive(Clone)]
pub struct Memory {
    pub(crate) time: Arc<Time>,
    listener: Arc<Listener>,
}

impl Memory {
    /// An empty server, at the time of this machine.
    ///
    /// # Errors
    /// [`CallError::Failed`] when the system has no free port on the loopback interface, or no thread.
    pub fn new() -> Result<Memory, CallError> {
        let time = Arc::new(Time::new());
        let date = time.clone();
        let listener = Server::new().and_then(|server| Listener::new(server, move || date.date()));
        let listener = listener.map_err(|error| {
            let text = format!("the in-memory server cannot start: {error}");
            CallError::Failed(Failure::new(FailureKind::Other, text).into())
        })?;
        Ok(Memory { time, listener: Arc::new(listener) })
    }

    /// Opens another gate on the server, as another process would.
    ///
    /// # Errors
    /// [`CallError::Failed`] when the system has no connection or no thread left.
    pub fn gate(&self) -> Result<Gate, CallError> {
        self.builder().open()
    }

    /// Settings for a gate on the server.
    pub fn builder(&self) -> GateBuilder {
        GateBuilder::new(Address::parse(&self.url()), Clock::moved(self.time.clone(), self.listener.clone()))
    }

    /// The address of the server, `redis://127.0.0.1:<port>/`, for other clients and for processes that the
    /// test starts. A gate that is opened with this URL uses the clock of the machine. Use
    /// [`gate`](Memory::gate) for the moved clock.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.listener.address())
    }

    /// A plain connection to the server, for your scripts and commands. The server implements `EVAL`,
    /// `EVALSHA`, `SCRIPT`, `SUBSCRIBE`, `PUBLISH`, `PUBSUB NUMSUB`, `EXISTS`, `TTL`, `KEYS`, `SCAN`,
    /// `DBSIZE` and `FLUSHALL`. Of the commands for strings, hashes, sorted sets and lists, it implements
    /// those that luagate's scripts call.
    ///
    /// # Errors
    /// [`CallError::Failed`] when the system has no connection left.
    pub fn connection(&self) -> Result<Connection, CallError> {
        let con = Client::open(self.url()).and_then(|client| client.get_connection());
        con.map_err(|error| CallError::Failed(received(error).into()))
    }

    /// The date that the moved clock shows.
    pub fn now(&self) -> SystemTime {
        self.time.date()
    }

    /// Sets the clock of the server, ahead or back, as an administrator might. It continues from there. The
    /// clock of the gates does not change.
    pub fn set_server_clock(&self, to: SystemTime) {
        self.listener.set_clock(to);
    }

    /// Moves the clock ahead, while gates continue to work: renewals are made when they are due, waiters ask
    /// again, and timeouts end waits. When it returns, everything that was due is done, and callbacks
    /// ([`on_lost`](crate::Semaphore::on_lost)) have run.
    ///
    /// It does not wait for other threads of the test. A thread that waits in line meanwhile must join the
    /// line before this call: check with [`inspect`](crate::Semaphore::inspect). If a callback takes longer
    /// than 5 s, this call stops waiting for it and moves the rest of the time at once. A callback must not
    /// move the clock.
    ///
    /// Each renewal and each call of a waiter takes about half a millisecond. All moves together are at most
    /// 50 years.
    ///
    /// It blocks its thread, also in an async test: use `#[tokio::test(flavor = "multi_thread")]` and
    /// `spawn_blocking`.
    pub fn advance(&self, by: Duration) {
        self.time.advance(by);
    }

    /// Moves the clock ahead at once, as if the machine with all these gates was suspended while the server
    /// continued. Everything that was due is done late: a permit whose lease has ended is lost, even if it is
    /// renewed automatically. When it returns, callbacks for lost permits have run.
    pub fn suspend(&self, time: Duration) {
        self.time.suspend(time);
    }

    /// Gives access to the server between two commands, for example for [`Server::set_full`]. If you change
    /// its time, the next command sets it to the time of this `Memory` again.
    pub fn with_server<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        self.listener.with_server(act)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("url", &self.url()).field("now", &self.now()).finish_non_exhaustive()
    }
}
