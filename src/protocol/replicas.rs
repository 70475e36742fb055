//! Confirmation of a grant by replicas, before it counts.

use super::exchange::Reply;
use crate::error::failure::{Failure, FailureKind};
use redis::FromRedisValue;
use std::time::Duration;

/// The number of replicas that must confirm, and the time within which they must.
#[derive(Clone, Copy, Debug)]
pub struct MinReplicas {
    pub count: u32,
    pub timeout: Duration,
}

impl MinReplicas {
    /// The command that follows the calls to confirm, on the same connection.
    pub fn command(&self) -> Vec<u8> {
        let mut wait = redis::cmd("WAIT");
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        wait.arg(self.count).arg(timeout.max(1)); // 0 would mean no timeout
        wait.get_packed_command()
    }

    /// Fails unless the reply reports enough confirmations.
    pub fn check(&self, reply: Option<Reply>) -> Result<(), Failure> {
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
