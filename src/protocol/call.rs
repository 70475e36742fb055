//! A call of a script as a value: its command, and how to read its reply.

use super::resp;
use super::script::LazyScript;
use crate::error::CallError;
use redis::{Cmd, Value};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A call of one script as a value, with the type of its answer.
///
/// Each function of [`semaphore`](crate::scripts::semaphore), [`latch`](crate::scripts::latch) and
/// [`autocomplete`](crate::scripts::autocomplete) has a type with the same arguments that implements this trait. Only
/// this crate can implement it. See [your own async client or pool](crate::scripts#your-own-async-client-or-pool).
pub trait Call {
    /// What the script answers.
    type Answer;

    /// Whether it changes nothing, so that a release which runs after it would change its answer.
    #[doc(hidden)]
    fn only_reads(&self) -> bool {
        false
    }

    /// The command that is sent.
    #[doc(hidden)]
    fn pack(&self) -> Packed;

    /// Reads the reply to this call.
    #[doc(hidden)]
    fn answer(&self, reply: Value) -> Result<Self::Answer, CallError>;
}

/// A packed command as a value of `redis`.
fn command(packed: &[u8]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words(packed).collect::<Vec<_>>());
    command
}

/// The words of a packed command.
fn words(packed: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let words = match redis::parse_redis_value(packed) {
        Ok(Value::Array(words)) => words,
        _ => Vec::new(),
    };
    words.into_iter().filter_map(|word| match word {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    })
}

/// A call in the form in which it is sent: the command `EVALSHA`. `EVAL` is the same with the text in place of the
/// SHA-1.
#[derive(Clone)]
pub struct Packed {
    script: &'static LazyScript,
    command: Vec<u8>,
    /// The number of words in the command.
    words: usize,
    /// The offset of the part that `EVAL` has too: the number of keys, the keys, the arguments.
    rest: usize,
    /// The offset of the first key.
    key: Range<usize>,
}

/// The keys of a call in the form in which they are sent: their number, then each key. They are packed once for many
/// calls.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PackedKeys {
    words: Arc<[u8]>,
    count: usize,
    first: Range<usize>,
}

impl PackedKeys {
    pub fn new(keys: &[&str]) -> PackedKeys {
        let mut words = Vec::new();
        resp::number(&mut words, keys.len() as u64);
        let mut first = Range::default();
        for key in keys {
            resp::word(&mut words, key.as_bytes());
            if first.is_empty() {
                let end = words.len() - b"\r\n".len();
                first = end - key.len()..end;
            }
        }
        PackedKeys { words: words.into(), count: keys.len(), first }
    }
}

impl fmt::Debug for PackedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.count)
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a call for {}", String::from_utf8_lossy(self.key()))
    }
}

impl Packed {
    pub fn new(script: &'static LazyScript, keys: &PackedKeys, arguments: &[Argument]) -> Packed {
        let words = 3 + keys.count + arguments.len();
        let mut command = Vec::with_capacity(512);
        resp::begin(&mut command, words);
        command.extend_from_slice(&script.by_sha1);
        let rest = command.len();
        command.extend_from_slice(&keys.words);
        for argument in arguments {
            match argument {
                Argument::Bytes(bytes) => resp::word(&mut command, bytes),
                Argument::Number(number) => resp::number(&mut command, *number),
            }
        }
        Packed { script, command, words, rest, key: rest + keys.first.start..rest + keys.first.end }
    }

    /// The first key. It decides which node of a cluster gets the call.
    pub fn key(&self) -> &[u8] {
        self.command.get(self.key.clone()).unwrap_or_default()
    }

    /// The command that names the script by its SHA-1.
    pub fn by_sha1(&self) -> &[u8] {
        &self.command
    }

    /// Appends the command that contains the script's text. The server has the script afterwards.
    pub fn write_with_text(&self, packet: &mut Vec<u8>) {
        resp::begin(packet, self.words);
        resp::word(packet, b"EVAL");
        resp::word(packet, self.script.text.as_bytes());
        packet.extend_from_slice(self.command.get(self.rest..).unwrap_or_default());
    }

    /// The command `EVALSHA` for a client of the caller.
    pub fn evalsha(&self) -> Cmd {
        command(&self.command)
    }

    /// The command `EVAL` for a client of the caller.
    pub fn eval(&self) -> Cmd {
        let mut packet = Vec::new();
        self.write_with_text(&mut packet);
        command(&packet)
    }
}

/// An argument of a script.
pub enum Argument<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

impl<'a, B: AsRef<[u8]> + ?Sized> From<&'a B> for Argument<'a> {
    fn from(bytes: &'a B) -> Self {
        Argument::Bytes(bytes.as_ref())
    }
}

impl From<u64> for Argument<'_> {
    fn from(number: u64) -> Self {
        Argument::Number(number)
    }
}

impl From<u32> for Argument<'_> {
    fn from(number: u32) -> Self {
        Argument::Number(number.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Keys;
    use super::super::semaphore::Release;
    use super::*;

    #[test]
    fn the_commands_for_other_clients_are_those_of_this_one() {
        let keys = Keys::mutex("luagate", "m").unwrap();
        let call = Release { keys: &keys, id: "id", keep: 0, fence: None }.pack();
        assert_eq!(call.evalsha().get_packed_command(), call.by_sha1());
        let mut with_text = Vec::new();
        call.write_with_text(&mut with_text);
        assert!(with_text.starts_with(b"*8\r\n$4\r\nEVAL\r\n"), "{:?}", String::from_utf8_lossy(&with_text));
        assert_eq!(call.eval().get_packed_command(), with_text);
    }
}
