//! The engine of a gate: its connections, and the threads that serve them. Threads and tasks use the same
//! connections.
//!
//! **Connections.** One to each server for all calls. The first wait in line opens a second one, for
//! messages. With `min_replicas` there is a third one, for calls with `WAIT`. All use RESP2. See [`server`].
//!
//! **Who writes.** The caller, if no other thread is writing. Otherwise the thread that writes takes its
//! packet along. See
//! [`writing`].
//!
//! **Who reads.** A thread that waits alone. If more than one caller waits, or a task, the connection's own
//! thread reads. See [`reading`].
//!
//! **Who waits** does so in a [`slot`]: threads and tasks alike.
//!
//! | thread | starts | does | ends |
//! |---|---|---|---|
//! | `luagate`, one for each gate | with the first lease to renew, loss to report, release to repeat, or timer of a task | renews leases, repeats releases, notices lost permits, ends the waits of tasks at their deadlines. It never blocks for a reply: it polls futures. See [`worker`] | after its gate was dropped, with its last work |
//! | `luagate-io`, one for each connection | to make the connection: a caller never connects | connects. Then it reads if somebody waits who does not read: a task, a second thread, a wait with a `Cancel` handle or on a moved clock, a posted release | with its connection |
//! | `luagate-names` | with each look-up of a host name | looks it up. See [`names`] | with the look-up |
//! | `luagate-wakers` | with the first task that waits | wakes tasks. See [`foreign`](crate::foreign) | after its gate was dropped |
//! | `luagate-on-lost` | with the first loss or end of a permit that has a callback | runs the callbacks, and drops what they capture | after its gate was dropped |
//! | `luagate-events` | with the first event, if the feature `tracing` is on | reports events to the subscriber | after its gate was dropped |
//! | `luagate-sentinel` | when a gate on sentinels is opened | receives messages about a new master, and ends the connections to the former one. See [`failovers`] | after its gate was dropped |
//!
//! **Code of the program** runs in no thread that reads, renews or connects, and under no lock: wakers,
//! callbacks, what they capture, subscribers of `tracing`. [`foreign`](crate::foreign) runs it.
//!
//! **Who renews.** The thread `luagate`, for threads and tasks alike. While there are leases to renew, it
//! looks every 500 ms at the connection, on which nobody may be reading. If the connection has ended it
//! renews one lease, which connects again. On a new connection it renews all leases at once.
//!
//! **A dropped permit** posts its release: it is sent, and nobody waits for the reply. The thread that reads
//! handles the reply. Calls on one connection run in the order in which they were submitted, so a later call
//! runs after the release. The first release on a connection is sent with the text of its script, so a server
//! that does not know it delays nothing.
//!
//! **A dropped future** gives up its packet: the reply is read and not used. If the call may have been
//! granted a permit or a place in line, its release is posted behind it, on the same connection.
//!
//! **A silent server.** If nothing arrives for the read timeout although replies are missing, the calls that
//! waited for so long fail, and later calls use a new connection. The silent one stays for at most 120 s, for
//! releases behind its calls.
//!
//! **A cluster.** `MOVED`, `ASK` and lost replies are handled by the state machines of
//! [`routing`](luagate_core::routing). [`servers`] executes their steps.
//!
//! **Blocking.** Each operation is one `async fn` that takes a [`Mode`](mode::Mode). In blocking mode the
//! primitives of this module block; in async mode they wake the task. No async runtime is needed.

pub(crate) mod address;
mod cluster;
pub(crate) mod connection;
mod connector;
pub(crate) mod counters;
pub(crate) mod credentials;
pub(crate) mod ending;
pub(crate) mod endpoint;
mod failovers;
mod greeting;
pub(crate) mod mode;
pub(crate) mod names;
mod packets;
mod reader;
pub(crate) mod reading;
pub(crate) mod sentinels;
pub(crate) mod server;
pub(crate) mod servers;
mod silence;
pub(crate) mod slot;
mod socket;
mod state;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
#[cfg(test)]
pub(crate) mod walk;
pub(crate) mod worker;
mod writing;
