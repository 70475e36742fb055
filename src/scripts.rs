//! Every Lua script on your own connection, pool or async client.
//!
//! Each function runs one script of the folder `lua/`, and converts its reply into a type. This takes one
//! round trip, or two if the server does not have the script yet. These functions do not renew, repeat or
//! wait. The caller must store the id and the end of the lease. Each script can be run again with the same id
//! after its reply was lost.
//!
//! ```no_run
//! use luagate::scripts::{Keys, semaphore};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?; // or one of a pool such as r2d2
//! let keys = Keys::mutex("luagate", "account:17")?;
//! let ask = semaphore::Ask { id: "worker-1", limit: 1, ..semaphore::Ask::default() };
//! let answer = semaphore::acquire(&mut con, &keys, &ask)?;
//! # let _ = answer;
//! # Ok(())
//! # }
//! ```
//!
//! # Your own async client or pool
//!
//! For each function there is a type with the same arguments, for example [`semaphore::Acquire`]. It
//! implements
//! [`Call`]. [`evalsha`] and [`eval`] build its command as a [`redis::Cmd`], your client sends it, and
//! [`read`] converts the reply. Most programs need one function like this:
//!
//! ```no_run
//! use luagate::errors::CallError;
//! use luagate::scripts::{self, Call, Keys, semaphore};
//! use redis::aio::ConnectionLike; // needs the feature `aio` of the crate `redis`
//!
//! async fn run<C: Call>(con: &mut impl ConnectionLike, call: &C) -> Result<C::Answer, CallError> {
//!     let mut reply = scripts::evalsha(call).query_async(con).await;
//!     if scripts::is_no_script(&reply) {
//!         reply = scripts::eval(call).query_async(con).await; // the server has the script from now on
//!     }
//!     scripts::read(call, reply)
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = redis::Client::open("redis://127.0.0.1/")?;
//! let mut con = client.get_connection_manager().await?;
//! let keys = Keys::mutex("luagate", "account:17")?;
//! let ask = semaphore::Ask { id: "worker-1", limit: 1, ..semaphore::Ask::default() };
//! let answer = run(&mut con, &semaphore::Acquire { keys: &keys, ask }).await?;
//! # let _ = answer;
//! # Ok(())
//! # }
//! ```
//!
//! The examples `connection_manager` and `bb8_pool` in the folder `examples/` are complete programs. A
//! cluster client sends each command to the node that has the keys.

pub mod autocomplete;
pub mod latch;
pub mod semaphore;

pub use luagate_core::call::Call;
pub use luagate_core::keys::{Keys, LatchKeys};
pub use luagate_core::lease::ServerTime;

/// Lua code for the start of your own script. It defines `holds(meta, holders, id, fence)`, which is true
/// while that permit is held. The script then writes in the same atomic step: only the holder can write.
///
/// The first two keys are those of [`Permit::keys`](crate::Permit::keys). Declare them together with your own
/// keys. `fence` is the fence of the permit, as a text from ARGV. In a cluster, all keys of a script must
/// have the same hash tag: put [`Keys::tag`] in braces into your keys.
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
///     .key(&lock.keys().list()) // three keys
///     .key(format!("balance:{{{}}}", lock.keys().tag()))
///     .arg((lock.id(), lock.fence()))
///     .arg("100 gold")
///     .invoke(&mut con)?;
/// # Ok(())
/// # }
/// ```
pub const HOLDS: &str = include_str!("../lua/dist/semaphore/holds.lua");

use crate::error::CallError;
use crate::error::received::{self, received};
use crate::lua::SCRIPTS;
use luagate_core::exchange::{Exchange, error_in};
use luagate_core::reply::{error_of, unexpected};
use redis::{Cmd, ConnectionLike, ErrorKind, RedisResult, ServerErrorKind, Value};

/// The command `EVALSHA` of a call. It names the script by its SHA-1.
///
/// A cluster client sends it to the node that has the keys.
pub fn evalsha(call: &impl Call) -> Cmd {
    command(call.pack(&SCRIPTS).by_sha1())
}

/// The command `EVAL` of a call. It contains the text of the script, up to about 30 kB.
///
/// Afterwards the server has the script, so the next call can use [`evalsha`].
pub fn eval(call: &impl Call) -> Cmd {
    let mut packet = Vec::new();
    call.pack(&SCRIPTS).write_with_text(&mut packet);
    command(&packet)
}

/// Reads the reply to [`evalsha`] or [`eval`]: a value, or the error that the client returned in its place.
///
/// # Errors
/// Those of the function with these arguments. [`CallError::Invalid`] names an argument that the script
/// refuses. Otherwise the reason why there was no valid reply, for example a missing permission.
pub fn read<C: Call>(call: &C, reply: RedisResult<Value>) -> Result<C::Answer, CallError> {
    let reply = error_in(reply.map(received::value).map_err(received)).map_err(error_of)?;
    Ok(call.answer(reply)?)
}

/// Whether the server does not have the script: it replied `NOSCRIPT`. Then send [`eval`].
///
/// A server forgets its scripts when it restarts, on `SCRIPT FLUSH`, and in a failover.
pub fn is_no_script(reply: &RedisResult<Value>) -> bool {
    match reply {
        Ok(Value::ServerError(error)) => error.kind() == Some(ServerErrorKind::NoScript),
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::Server(ServerErrorKind::NoScript),
    }
}

/// A packed command as a value of `redis`.
fn command(packed: &[u8]) -> Cmd {
    let mut command = Cmd::new();
    if let Ok(Value::Array(words)) = redis::parse_redis_value(packed) {
        for word in words {
            if let Value::BulkString(word) = word {
                command.arg(word);
            }
        }
    }
    command
}

/// Runs one call on a connection of the caller.
fn run<C: Call>(con: &mut dyn ConnectionLike, call: &C) -> Result<C::Answer, CallError> {
    let packed = call.pack(&SCRIPTS);
    let calls = [&packed];
    let mut exchange = Exchange::new(&calls);
    while let Some(packet) = exchange.packet() {
        let reply = con.req_packed_command(&packet.bytes);
        exchange.receive([reply.map(received::value).map_err(received)]);
    }
    match exchange.outcomes().into_iter().flatten().next() {
        Some(reply) => Ok(call.answer(reply.map_err(error_of)?)?),
        None => Err(unexpected(&"no reply").into()),
    }
}
