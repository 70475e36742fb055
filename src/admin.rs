//! What tools need to operate the servers of a gate: which semaphores they store, long lists in pages, and
//! plain commands.
//!
//! The command `luagate` uses these functions. They block, and have no async form: use `spawn_blocking` in a
//! task.

use crate::engine::mode::block;
use crate::engine::server::Server;
use crate::error::CallError;
use crate::error::received::{received, to_redis};
use crate::gate::Gate;
use crate::semaphore::Semaphore;
use crate::semaphore::inspection::Inspection;
use luagate_core::exchange::error_in;
use luagate_core::invalid::MOST;
use luagate_core::keys;
use luagate_core::reply::error_of;
use redis::{Cmd, Value};
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

/// How many keys the server looks at in one step of a search. A step takes the server less than a
/// millisecond.
const STEP: usize = 1_000;

/// The servers that store keys: one, or the masters of the cluster that are known now. Acquiring needs no
/// list of servers. Blocks for one round trip in a cluster.
///
/// # Errors
/// [`CallError::Failed`] if no node of the cluster answers.
pub fn masters(gate: &Gate) -> Result<Vec<Master>, CallError> {
    let servers = block(|mode| gate.shared.servers.masters(mode))?;
    Ok(servers.into_iter().map(|server| Master { gate: gate.clone(), server }).collect())
}

/// The names of the semaphores, mutexes and reader-writer locks that the servers store under the prefix of
/// this gate, each once and in no particular order. A name is stored while permits are in use or somebody
/// waits, for about a minute after that, and while its limit is pinned.
///
/// It searches all keys of each server with `SCAN`, 1,000 in a step. Each step is a separate call that blocks
/// for a round trip, so the server answers other clients in between. A name that appears or disappears
/// meanwhile may be missing. The user needs permission for `SCAN`.
///
/// # Errors
/// An item is [`CallError`] if a server did not answer a step. It is the last item.
///
/// ```no_run
/// use luagate::admin;
///
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// for name in admin::names(&gate)? {
///     let name = name?;
///     println!("{name}: {}", admin::semaphore(&gate, &name).inspect()?);
/// }
/// # Ok(())
/// # }
/// ```
pub fn names(gate: &Gate) -> Result<Names, CallError> {
    let masters = masters(gate)?.into();
    Ok(Names { masters, cursor: 0, found: VecDeque::new(), seen: HashSet::new() })
}

/// The semaphore with this name and of this kind, to inspect and to change it. Sends nothing to the server. A
/// mutex is a semaphore with the limit 1; a reader-writer lock is one with the limit 2^31-1.
pub fn semaphore(gate: &Gate, name: &Name) -> Semaphore {
    let limit = match name.kind {
        Kind::Semaphore => None,
        Kind::Mutex => Some(1),
        Kind::RwLock => Some(MOST),
    };
    Semaphore::new(gate.shared.clone(), name.kind.as_str(), &name.name, limit)
}

/// Returns at most `count` (up to 1,000) holders and as many waiters, each list without its first `offset`
/// entries. Two pages show two different instants. Blocks for one round trip.
///
/// # Errors
/// [`CallError::Invalid`] for a count above 1,000.
pub fn inspect_page(semaphore: &Semaphore, offset: u32, count: u32) -> Result<Inspection, CallError> {
    block(|mode| semaphore.inspect_by(offset, count, mode))
}

/// The name of a semaphore, mutex or reader-writer lock, and which of them it is. The same name can exist
/// once of each kind. [`names`] lists those that the servers store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// The kind of a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// [`Semaphore`].
    Semaphore,
    /// [`Mutex`](crate::Mutex).
    Mutex,
    /// [`RwLock`](crate::RwLock).
    RwLock,
}

impl Kind {
    /// All kinds.
    pub const ALL: &'static [Kind] = &[Kind::Semaphore, Kind::Mutex, Kind::RwLock];

    /// The word for it in keys and in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Semaphore => "semaphore",
            Kind::Mutex => "mutex",
            Kind::RwLock => "rwlock",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// A server that stores keys of a gate: the only one, or a master of a cluster. [`masters`] returns it.
#[derive(Clone)]
pub struct Master {
    gate: Gate,
    server: Arc<Server>,
}

impl Master {
    /// The address, without user or password.
    pub fn address(&self) -> String {
        self.server.address()
    }

    /// Runs a plain command on this server, such as `INFO`. Blocks for a round trip.
    ///
    /// # Errors
    /// [`CallError`] if the server does not answer, or answers with an error.
    pub fn command(&self, command: &Cmd) -> Result<Value, CallError> {
        self.gate.shared.servers.check_process()?;
        let servers = &self.gate.shared.servers;
        let latest = servers.latest(None, servers.timeouts.read);
        let reply = block(|mode| self.server.command(command.get_packed_command(), latest, mode))?;
        Ok(error_in(Ok(reply)).map(to_redis).map_err(error_of)?)
    }

    /// One step of a search: the names in it, and where the next step begins. 0: that was the last one.
    fn step(&self, cursor: u64) -> Result<(u64, Vec<Name>), CallError> {
        let prefix = &self.gate.shared.prefix;
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{prefix}:*{{*")).arg("COUNT").arg(STEP);
        let reply = self.command(&scan)?;
        let (next, keys): (u64, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|error| error_of(received(error.into())))?;
        let names = keys.iter().filter_map(|key| {
            let (word, name) = keys::parts_under(prefix, std::str::from_utf8(key).ok()?)?;
            let kind = Kind::ALL.iter().copied().find(|kind| kind.as_str() == word)?;
            Some(Name { kind, name: name.to_owned() })
        });
        Ok((next, names.collect()))
    }
}

impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Master").field(&self.address()).finish()
    }
}

/// The names that [`names`] finds.
#[derive(Debug)]
#[must_use = "nothing is searched before the first `next`"]
pub struct Names {
    /// The first one is searched now.
    masters: VecDeque<Master>,
    cursor: u64,
    found: VecDeque<Name>,
    /// A server may report a key more than once.
    seen: HashSet<Name>,
}

impl Names {
    /// The names that the next step finds, which may be none. `None`: the search has ended. For a tool that
    /// pauses between the steps of a search. Blocks for a round trip.
    ///
    /// # Errors
    /// [`CallError`] if the server did not answer the step. The search has ended then.
    pub fn next_step(&mut self) -> Option<Result<Vec<Name>, CallError>> {
        let (next, names) = match self.masters.front()?.step(self.cursor) {
            Ok(step) => step,
            Err(error) => {
                self.masters.clear();
                return Some(Err(error));
            }
        };
        self.cursor = next;
        if next == 0 {
            self.masters.pop_front();
        }
        Some(Ok(names.into_iter().filter(|name| self.seen.insert(name.clone())).collect()))
    }
}

impl Iterator for Names {
    type Item = Result<Name, CallError>;

    fn next(&mut self) -> Option<Result<Name, CallError>> {
        loop {
            if let Some(name) = self.found.pop_front() {
                return Some(Ok(name));
            }
            match self.next_step()? {
                Ok(names) => self.found = names.into(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
