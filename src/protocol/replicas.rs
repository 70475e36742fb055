//! Replicas that must have a grant before it counts.

use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use redis::{Cmd, FromRedisValue, RedisResult, Value};
use std::time::Duration;

/// So many replicas have to confirm, within so long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinReplicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

impl MinReplicas {
    /// What follows the calls that are to be confirmed, on their connection.
    pub(crate) fn command(&self) -> Cmd {
        let mut wait = redis::cmd("WAIT");
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        wait.arg(self.count).arg(timeout.max(1)); // 0 would be for ever
        wait
    }

    /// Whether the reply says that enough confirmed.
    pub(crate) fn check(&self, reply: Option<RedisResult<Value>>) -> Result<(), CallError> {
        let confirmed = match reply {
            Some(reply) => reply.and_then(|value| Ok(u32::from_redis_value(value)?)),
            None => Ok(0),
        };
        let confirmed = confirmed.map_err(|error| CallError::Failed(error.into()))?;
        if confirmed >= self.count {
            return Ok(());
        }
        let MinReplicas { count, timeout } = self;
        let text = format!("{confirmed} of {count} within {timeout:?}");
        Err(CallError::Failed(Failure::new(
            FailureKind::TooFewReplicas,
            text,
        )))
    }
}
