//! A connection that returns a given reply, and parts of replies.

use redis::{ConnectionLike, RedisResult, Value};

/// Replaces a connection: returns a given reply.
pub(crate) struct StandIn {
    pub(crate) single: RedisResult<Value>,
    pub(crate) several: RedisResult<Vec<Value>>,
}

impl StandIn {
    pub(crate) fn answering(value: &Value) -> StandIn {
        StandIn { single: value.clone().extract_error(), several: Ok(Vec::new()) }
    }
}

impl ConnectionLike for StandIn {
    fn req_packed_command(&mut self, _: &[u8]) -> RedisResult<Value> {
        self.single.clone()
    }

    fn req_packed_commands(&mut self, _: &[u8], _: usize, _: usize) -> RedisResult<Vec<Value>> {
        self.several.clone()
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

pub(super) fn reply(word: &str, fields: Vec<Value>) -> Value {
    Value::Array([vec![text(word)], fields].concat())
}
