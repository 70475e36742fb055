//! A server in this process, for unit tests that need none. With the feature `memory`.
//!
//! A program takes a [`Gate`], and its tests give it one of [`Gate::in_memory`]. Everything works as on a server: the same
//! scripts run, and the same client talks to them through sockets of the loopback. Only the time is another: it runs
//! along with the machine's, and [`Memory::advance`] moves it ahead, so that a test sees in no time what takes an hour.
//!
//! ```toml
//! [dev-dependencies]
//! luagate = { version = "0.1", features = ["memory"] }
//! ```
//!
//! ```
//! use luagate::{Gate, errors::TryAcquireError};
//! use std::time::Duration;
//!
//! /// What is tested: three may download at a time, each for ten minutes.
//! fn start_download(gate: &Gate) -> Result<luagate::Permit, TryAcquireError> {
//!     let downloads = gate.semaphore("downloads", 3).lease(Duration::from_secs(600));
//!     downloads.try_acquire()
//! }
//!
//! # fn main() -> Result<(), luagate::Error> {
//! // #[test]
//! // fn the_fourth_download_waits_until_a_first_one_is_over()
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
//! Each [`Memory`] is a world of its own, with a server, a clock and the gates that were opened on it, so tests may run
//! side by side. It ends, with its threads and sockets, when the last handle and the last gate on it are gone.
//!
//! What it is not: it keeps nothing on disk, has no replicas and no cluster, and knows those commands only that
//! luagate's scripts use, and a few more. [`Server`] is the same without sockets and threads, for simulations that
//! decide what happens when.

/// Every one-shot operation of [`scripts`](crate::scripts) runs on it. For the unit tests of a program there is [`Memory`].
///
/// ```
/// use luagate::scripts::{Keys, semaphore::{self, Answer, Ask}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut server = luagate::memory::Server::new()?;
/// let keys = Keys::semaphore("luagate", "market")?;
/// let ask = Ask { id: "ann", limit: 1, lease_ms: 1_000, ..Ask::default() };
/// let answer = semaphore::acquire(&mut server, &keys, &ask)?;
/// assert!(matches!(answer, Answer::Granted(..)));
/// # Ok(())
/// # }
/// ```
pub use luagate_memory::Server;
pub use luagate_memory::Store;

use crate::clock::{Clock, Time};
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, Invalid};
use crate::gate::{Gate, GateBuilder};
use crate::sync::lock;
use crate::transport::address::Address;
use luagate_memory::Listener;
use redis::{Client, Connection};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// How long moving the clock waits for a thread that has something to do and does not come to an end with it.
const UNSETTLED: Duration = Duration::from_secs(5);

/// A server in this process, with a clock that a test moves; and all gates on it. Clones are the same.
///
/// See [the module](self) for an example.
#[derive(Clone)]
pub struct Memory {
    world: Arc<World>,
}

/// A server and its clock.
pub(crate) struct World {
    pub(crate) time: Arc<Time>,
    listener: Listener,
    /// Held by who moves the clock.
    moving: Mutex<()>,
}

impl Memory {
    /// An empty server, at the time of this machine.
    ///
    /// # Errors
    /// [`CallError::Failed`] when the system gives no port on the loopback, or no thread.
    pub fn new() -> Result<Memory, CallError> {
        let time = Arc::new(Time::new());
        let date = time.clone();
        let listener = Server::new().and_then(|server| Listener::new(server, move || date.date()));
        let listener = listener.map_err(|error| {
            let text = format!("no server in memory: {error}");
            CallError::Failed(Failure::new(FailureKind::Other, text))
        })?;
        Ok(Memory {
            world: Arc::new(World {
                time,
                listener,
                moving: Mutex::default(),
            }),
        })
    }

    /// Opens another gate on it, as another process would.
    ///
    /// # Errors
    /// [`CallError::Failed`] when the system gives no connection or no thread.
    pub fn gate(&self) -> Result<Gate, CallError> {
        self.builder().open()
    }

    /// Settings for a gate on it.
    pub fn builder(&self) -> GateBuilder {
        GateBuilder::new(Address::parse(&self.url()), Clock::of(&self.world))
    }

    /// Where it listens, `redis://127.0.0.1:<port>/`: for other clients, or a process that the test starts. A gate that
    /// is opened by this url has a clock of its own, the machine's; take [`gate`](Memory::gate).
    pub fn url(&self) -> String {
        format!("redis://{}/", self.world.listener.address())
    }

    /// A plain connection to it, for scripts and commands of your own. It knows `EVAL`, `EVALSHA` and `SCRIPT`,
    /// `SUBSCRIBE`, `PUBLISH` and `PUBSUB NUMSUB`; of strings, hashes, sorted sets and lists those commands that
    /// luagate's scripts call; and `EXISTS`, `TTL`, `KEYS`, `SCAN`, `DBSIZE`, `FLUSHALL`.
    ///
    /// # Errors
    /// [`CallError::Failed`] when the system gives no connection.
    pub fn connection(&self) -> Result<Connection, CallError> {
        let con = self.client()?.get_connection();
        con.map_err(|error| CallError::Failed(error.into()))
    }

    fn client(&self) -> Result<Client, Invalid> {
        Client::open(self.url()).map_err(|error| Invalid::new("url", error.to_string()))
    }

    /// The date by the moved clock. It runs along with this machine's.
    pub fn now(&self) -> SystemTime {
        self.world.time.date()
    }

    /// Sets the clock of the server alone, ahead or back, as an administrator might; it goes on from there. No gate
    /// notices by itself.
    pub fn set_server_clock(&self, to: SystemTime) {
        self.world.listener.set_clock(to);
    }

    /// Moves the clock ahead, as if so much time had passed and everybody had gone on: on the way renewals are made
    /// when they are due, waiters ask when they would ask, and times of waits run out. When it returns, whatever was
    /// due is done, and callbacks ([`on_lost`](crate::Semaphore::on_lost)) have run.
    ///
    /// It waits for nothing else than that: what a thread of the test does once its wait is over goes on beside it. A
    /// thread that is to wait in line meanwhile should stand there before; [`inspect`](crate::Semaphore::inspect)
    /// tells. A callback that does not return within 5 s is not waited for, and the rest of the way is made at once; so
    /// a callback does not move the clock itself.
    ///
    /// Each renewal and each question on the way takes about half a millisecond. The clock can be moved by 50 years
    /// altogether.
    pub fn advance(&self, by: Duration) {
        let _moving = lock(&self.world.moving);
        let mut left = by;
        while let Some(moved) = self.world.step(left)
            && !moved.is_zero()
        {
            left -= moved;
        }
        self.world.time.jump(left); // nothing, unless somebody came to no end
    }

    /// Moves the clock ahead at once, as if the machine with all these gates had been suspended for so long while the
    /// server went on. What was due meanwhile is done late: a permit whose lease ended is lost, renewed or not. When it
    /// returns, callbacks have been told of that.
    pub fn suspend(&self, time: Duration) {
        let _moving = lock(&self.world.moving);
        self.world.step(Duration::ZERO);
        self.world.time.jump(time);
        self.world.step(Duration::ZERO);
    }

    /// Does something with the server between two commands: [`Server::set_full`] lets its memory be full, say. Its time
    /// is that of this `Memory` again with the next command.
    pub fn with_server<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        self.world.listener.with_server(act)
    }
}

impl World {
    /// Lets everybody do what there is to do, then moves the clock to when there is more, by `by` at most.
    fn step(&self, by: Duration) -> Option<Duration> {
        self.time.step(by, Instant::now() + UNSETTLED)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("url", &self.url())
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
