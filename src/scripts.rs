//! The scripts one to one, on a connection of your own.
//!
//! Each function runs one script of `lua/`, in one round trip (two where the server has to be given the script first),
//! and maps its reply to a type. Nothing is renewed, repeated or waited for here; whoever holds by these functions
//! keeps the id and the lease in mind alone. Every script may be run again with the same id when its reply was lost.

pub mod autocomplete;
pub mod latch;
pub mod semaphore;

pub use crate::protocol::keys::{Keys, LatchKeys};
pub use crate::protocol::lease::ServerTime;

/// Lua for the start of a script of your own: `holds(meta, holders, id, fence)` is true while that permit lives, so that
/// what the script then writes is written by its holder or not at all, in one atomic step.
///
/// The first two keys are those of [`Permit::keys`](crate::Permit::keys), declared with your own; `fence` is that of the
/// permit, as it came in ARGV. In a cluster all keys of a script share a hash tag: yours hold [`Keys::tag`] in braces.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// # let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
/// let write = redis::Script::new(&format!(
///     "{}
///     if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 0 end
///     redis.call('SET', KEYS[4], ARGV[3])
///     return 1",
///     luagate::scripts::HOLDS
/// ));
/// let lock = gate.mutex("account:17").lock()?;
/// let written: bool = write
///     .key(&lock.keys().names()) // three of them
///     .key(format!("balance:{{{}}}", lock.keys().tag()))
///     .arg((lock.id(), lock.fence()))
///     .arg("100 gold")
///     .invoke(&mut con)?;
/// # Ok(())
/// # }
/// ```
pub const HOLDS: &str = include_str!("../lua/dist/semaphore/holds.lua");

use crate::error::CallError;
use crate::protocol::call::Call;
use crate::protocol::exchange::Exchange;
use crate::protocol::reply::{error_of, unexpected};
use redis::ConnectionLike;

/// Runs one call on a connection of the user's own.
fn run<C: Call>(con: &mut dyn ConnectionLike, call: &C) -> Result<C::Answer, CallError> {
    let packed = call.pack();
    let calls = [&packed];
    let mut exchange = Exchange::new(&calls);
    // A connection to a cluster takes no packet of several commands, and would store the script on all nodes, of which
    // one that stalls elsewhere fails the call.
    exchange.stores = con.supports_pipelining();
    while let Some(packet) = exchange.packet() {
        let replies = match packet.replies {
            1 => vec![con.req_packed_command(&packet.bytes)],
            count => match con.req_packed_commands(&packet.bytes, 0, count) {
                Ok(replies) if replies.len() == count => replies.into_iter().map(Ok).collect(),
                Ok(_) => return Err(unexpected(&"not as many replies as commands")),
                Err(error) => vec![Err(error); count],
            },
        };
        exchange.receive(replies);
    }
    match exchange.outcomes().into_iter().flatten().next() {
        Some(reply) => call.answer(reply.map_err(error_of)?),
        None => Err(unexpected(&"no reply")),
    }
}
