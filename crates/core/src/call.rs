//! A call of a script as a value: its command, and how to read its reply.

use super::resp;
use super::script::{Script, Scripts};
use crate::failure::CallError;
use crate::value::Value;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A call of one script as a value, with the type of its answer. Each function of `scripts::semaphore`,
/// `scripts::latch` and `scripts::autocomplete` has a type with the same arguments that implements this
/// trait. Only luagate implements it.
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
    fn pack(&self, scripts: &'static Scripts) -> Packed;

    /// Reads the reply to this call.
    #[doc(hidden)]
    fn answer(&self, reply: Value) -> Result<Self::Answer, CallError>;
}

#[doc(hidden)]
/// A call in the form in which it is sent: the command `EVALSHA`. `EVAL` is the same with the text in place
/// of the SHA-1.
#[derive(Clone)]
pub struct Packed {
    script: &'static Script,
    command: Vec<u8>,
    /// The number of words in the command.
    words: usize,
    /// The offset of the part that `EVAL` has too: the number of keys, the keys, the arguments.
    rest: usize,
    /// The offset of the first key.
    key: Range<usize>,
}

#[doc(hidden)]
/// The keys of a call in the form in which they are sent: their number, then each key. They are packed once
/// for many calls.
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
    pub fn new(script: &'static Script, keys: &PackedKeys, arguments: &[Argument]) -> Packed {
        let words = 3 + keys.count + arguments.len();
        let mut command = Vec::with_capacity(512);
        resp::begin(&mut command, words);
        command.extend_from_slice(script.by_sha1());
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
}

#[doc(hidden)]
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
