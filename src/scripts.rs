//! Every Lua script as a plain function, on your own connection.
//!
//! Each function runs one script of the folder `lua/`, and converts its reply into a type. This takes one round trip,
//! or two if the server does not have the script yet. These functions do not renew, repeat or wait. The caller must
//! store the id and the end of the lease. Each script can be run again with the same id after its reply was lost.

pub mod autocomplete;
pub mod latch;
pub mod semaphore;

pub use crate::protocol::keys::{Keys, LatchKeys};
pub use crate::protocol::lease::ServerTime;

/// Lua code for the start of your own script. It defines `holds(meta, holders, id, fence)`, which is true while that
/// permit is held. The script then writes in the same atomic step: only the holder can write.
///
/// The first two keys are those of [`Permit::keys`](crate::Permit::keys). Declare them together with your own keys.
/// `fence` is the fence of the permit, as a text from ARGV. In a cluster, all keys of a script must have the same hash
/// tag: put [`Keys::tag`] in braces into your keys.
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
///     .key(&lock.keys().names()) // three keys
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

/// Runs one call on a connection of the caller.
fn run<C: Call>(con: &mut dyn ConnectionLike, call: &C) -> Result<C::Answer, CallError> {
    let packed = call.pack();
    let calls = [&packed];
    let mut exchange = Exchange::new(&calls);
    // A cluster connection does not support a pipeline. It would also store the script on all nodes, and one
    // unresponsive node would then fail the call.
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
