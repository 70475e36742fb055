//! The scripts one to one, on a connection of your own.
//!
//! Each function runs one script of `lua/`, in one round trip (two where the server has to be given the script first),
//! and maps its reply to a type. Nothing is renewed, repeated or waited for here; whoever holds by these functions
//! keeps the id and the lease in mind alone. Every script may be run again with the same id when its reply was lost.

/// A script by its name in the manifest.
macro_rules! script {
    ($name:literal) => {
        $crate::protocol::script::LazyScript::new(|| {
            $crate::protocol::script::Script::new(include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/lua/dist/", // which `./dev manifest` writes
                $name,
                ".lua"
            )))
        })
    };
}

pub mod autocomplete;
pub mod latch;
pub mod semaphore;

pub use crate::protocol::name::{Keys, LatchKeys};

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

use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, Invalid};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::time::Duration;

/// A point in time on the server's clock: milliseconds since 1970.
pub type ServerTime = u64;

/// What a failed call means: an argument or a state that the script refused, a server that did not serve, or no reply at all.
fn error_of(error: RedisError) -> CallError {
    if error.code() == Some("LUAGATE") {
        let text = error.detail().unwrap_or_default();
        let (what, why) = text.split_once(": ").unwrap_or(("call", text));
        if what == "layout" {
            // No argument is wrong, but what the keys hold.
            let why = why.to_owned();
            return CallError::Failed(Failure::of_error(FailureKind::WrongVersion, why, error));
        }
        return CallError::Invalid(Invalid::new(what, why));
    }
    if error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot) {
        // A cluster refuses them before the script could.
        return CallError::Invalid(Invalid::new("keys", "takes keys of one hash tag"));
    }
    let failure = Failure::from(error);
    if failure.leaves_unknown() {
        CallError::Unknown(failure)
    } else {
        CallError::Failed(failure)
    }
}

/// Reads a reply of a script, all of it: what has a field too many is none of the contract's. Never panics, whatever the
/// server sent.
fn read<T>(
    value: Value,
    fields: impl FnOnce(&mut Reply) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let mut reply = Reply::new(value)?;
    let told = fields(&mut reply)?;
    match reply.fields.next() {
        None => Ok(told),
        Some(more) => Err(unexpected(&(&reply.shown, more))),
    }
}

/// A reply, read from front to back.
struct Reply {
    shown: String,
    fields: std::vec::IntoIter<Value>,
}

impl Reply {
    fn new(value: Value) -> Result<Reply, CallError> {
        match value {
            Value::Array(fields) => Ok(Reply {
                shown: String::new(),
                fields: fields.into_iter(),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// A reply that is one field and no array of several.
    fn plain(value: Value) -> Reply {
        Reply {
            shown: String::new(),
            fields: vec![value].into_iter(),
        }
    }

    fn word(&mut self) -> Result<&str, CallError> {
        match self.fields.next() {
            Some(Value::BulkString(bytes)) => {
                self.shown = String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
                Ok(&self.shown)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn integer(&mut self) -> Result<i64, CallError> {
        match self.fields.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(unexpected(&(&self.shown, other))),
        }
    }

    /// A number of any unsigned type that the field has to fit.
    fn number<T: TryFrom<i64>>(&mut self) -> Result<T, CallError> {
        let number = self.integer()?;
        T::try_from(number).map_err(|_| unexpected(&(&self.shown, number)))
    }

    /// A number for which -1 stands for never.
    fn number_or_never(&mut self) -> Result<Option<u64>, CallError> {
        match self.integer()? {
            -1 => Ok(None),
            number => match u64::try_from(number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(unexpected(&(&self.shown, number))),
            },
        }
    }

    /// 0 or 1.
    fn flag(&mut self) -> Result<bool, CallError> {
        match self.integer()? {
            0 => Ok(false),
            1 => Ok(true),
            number => Err(unexpected(&(&self.shown, number))),
        }
    }

    fn list(&mut self) -> Result<Vec<Vec<u8>>, CallError> {
        let bytes = |value| match value {
            Value::BulkString(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        };
        match self.fields.next() {
            Some(Value::Array(values)) => values.into_iter().map(bytes).collect(),
            other => Err(unexpected(&other)),
        }
    }

    /// A list of arrays, each of which `row` reads.
    fn rows<T>(
        &mut self,
        row: impl Fn(&mut Reply) -> Result<T, CallError>,
    ) -> Result<Vec<T>, CallError> {
        match self.fields.next() {
            Some(Value::Array(rows)) => rows.into_iter().map(|value| read(value, &row)).collect(),
            other => Err(unexpected(&other)),
        }
    }
}

pub(crate) fn unexpected(what: &dyn std::fmt::Debug) -> CallError {
    let mut text = format!("{what:?}");
    if let Some((end, _)) = text.char_indices().nth(200) {
        text.truncate(end);
    }
    CallError::Unknown(Failure::new(FailureKind::UnexpectedReply, text))
}

/// The time from `now` to `then`, both on the server's clock.
pub(crate) fn between(now: ServerTime, then: ServerTime) -> Duration {
    Duration::from_millis(then.saturating_sub(now))
}
