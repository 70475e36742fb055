//! The buffers with which a thread reads a connection. Only the thread that has them reads.

use super::packets::Owner;
use luagate_core::parser::{NoReply, Replies};
use luagate_core::value::Value;

#[derive(Default)]
pub(super) struct Reader {
    replies: Replies,
    pub(super) chunk: Box<[u8]>,
    /// Complete replies and messages.
    pub(super) values: Vec<Value>,
    pub(super) answered: Vec<(Owner, Vec<Value>)>,
    pub(super) messages: Vec<Value>,
}

impl Reader {
    pub(super) fn new() -> Reader {
        let size = if cfg!(luagate_model) { 64 } else { 64 << 10 };
        Reader { chunk: vec![0; size].into(), ..Reader::default() }
    }

    /// Parses the first `count` bytes of the chunk, which have arrived.
    pub(super) fn parse(&mut self, count: usize) -> Result<(), NoReply> {
        self.replies.push(self.chunk.get(..count).unwrap_or_default());
        while let Some(value) = self.replies.next()? {
            self.values.push(value);
        }
        Ok(())
    }
}
