//! A connection that receives messages. It waits for at most `TICK` at a time, so that its thread can also do other
//! work.

use crate::clock::{machine_now, since};
use redis::{Connection, Msg, PubSub, RedisError, Value};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time to wait for a message at once.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// A connection without messages for this long is tested, since a broken connection may not report it.
const SILENCE: Duration = Duration::from_secs(5);

pub(crate) struct Subscription {
    con: Connection,
    /// The time for the answer to a test.
    within: Duration,
    read_timeout: Option<Duration>,
    last: Instant,
    /// Messages that arrived before the answer to a test.
    early: VecDeque<Msg>,
}

/// The connection is closed.
pub(crate) struct Broken;

impl Subscription {
    /// The subscription on this connection.
    pub(crate) fn on(con: Connection, within: Duration) -> Subscription {
        Subscription { con, within, read_timeout: None, last: machine_now(), early: VecDeque::new() }
    }

    /// The next message. `None` if none arrived until `until`, or within `TICK`.
    pub(crate) fn next(&mut self, until: Instant) -> Result<Option<Msg>, Broken> {
        if let Some(message) = self.early.pop_front() {
            return Ok(Some(message));
        }
        let left = until.saturating_duration_since(machine_now());
        self.bound(left.clamp(Duration::from_millis(1), TICK))?;
        match self.pubsub().get_message() {
            Ok(message) => {
                self.last = machine_now();
                Ok(Some(message))
            }
            Err(error) if is_pause(&error) => Ok(None),
            Err(_) => Err(Broken),
        }
    }

    /// Tests the connection if it received nothing for a while.
    pub(crate) fn test(&mut self) -> Result<(), Broken> {
        if since(self.last) < SILENCE {
            return Ok(());
        }
        self.bound(self.within)?;
        let mut pubsub = ManuallyDrop::new(self.con.as_pubsub());
        let answered = pubsub.ping::<Value>();
        // `pubsub` now contains the messages that arrived before the answer.
        let timeout = Duration::from_millis(1);
        pubsub.set_read_timeout(Some(timeout)).map_err(|_| Broken)?;
        while let Ok(message) = pubsub.get_message() {
            self.early.push_back(message);
        }
        self.read_timeout = Some(timeout);
        self.last = machine_now();
        answered.map_err(|_| Broken).map(drop)
    }

    /// Whether the server answers, even if only with an error.
    pub(crate) fn works(&mut self) -> bool {
        let answered = self.bound(self.within).is_ok();
        answered && !matches!(self.pubsub().ping::<Value>(), Err(error) if error.is_io_error())
    }

    /// Without its drop, which would unsubscribe. That needs one more permission and waits for a reply. Instead, the
    /// connection is closed.
    fn pubsub(&mut self) -> ManuallyDrop<PubSub<'_>> {
        ManuallyDrop::new(self.con.as_pubsub())
    }

    fn bound(&mut self, time: Duration) -> Result<(), Broken> {
        if self.read_timeout != Some(time) {
            self.con.set_read_timeout(Some(time)).map_err(|_| Broken)?;
            self.read_timeout = Some(time);
        }
        Ok(())
    }
}

/// Whether no message arrived in time; or this process was stopped and continued, which interrupts a read with a
/// timeout, see signal(7). In both cases the connection still works.
fn is_pause(error: &RedisError) -> bool {
    let interrupted = || {
        let cause = std::error::Error::source(error)?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
        let kind = cause.downcast_ref::<std::io::Error>()?.kind();
        Some(kind == std::io::ErrorKind::Interrupted)
    };
    error.is_timeout() || interrupted() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_pause_is_no_broken_connection() {
        let is_pause = |kind| is_pause(&RedisError::from(Error::from(kind)));
        assert!(is_pause(ErrorKind::Interrupted));
        assert!(is_pause(ErrorKind::WouldBlock));
        assert!(!is_pause(ErrorKind::ConnectionReset));
        assert!(!is_pause(ErrorKind::UnexpectedEof));
    }
}
