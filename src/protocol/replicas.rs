//! Replicas that must have a grant before it counts.

use super::exchange::Reply;
use crate::error::failure::{Failure, FailureKind};
use redis::FromRedisValue;
use std::time::Duration;

/// So many replicas have to confirm, within so long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinReplicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

impl MinReplicas {
    /// What follows the calls that are to be confirmed, on their connection.
    pub(crate) fn command(&self) -> Vec<u8> {
        let mut wait = redis::cmd("WAIT");
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        wait.arg(self.count).arg(timeout.max(1)); // 0 would be for ever
        wait.get_packed_command()
    }

    /// Whether the reply says that enough confirmed.
    pub(crate) fn check(&self, reply: Option<Reply>) -> Result<(), Failure> {
        let confirmed = match reply {
            Some(reply) => reply.and_then(|value| Ok(u32::from_redis_value(value)?)),
            None => Ok(0),
        };
        let confirmed = confirmed.map_err(Failure::from)?;
        if confirmed >= self.count {
            return Ok(());
        }
        let MinReplicas { count, timeout } = self;
        let text = format!("{confirmed} of {count} confirmed within {timeout:?}");
        Err(Failure::new(FailureKind::TooFewReplicas, text))
    }
}
