//! A connection on which messages come, in pauses short enough to look at other things too.

use crate::clock::{machine_now, since};
use redis::{Connection, Msg, PubSub, RedisError, Value};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the longest pause is.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// A connection that was silent for so long is tested: one that died quietly is silent too.
const SILENCE: Duration = Duration::from_secs(5);

pub(crate) struct Subscription {
    con: Connection,
    /// How long an answer may take.
    within: Duration,
    read_timeout: Option<Duration>,
    last: Instant,
    /// What came while an answer was awaited.
    early: VecDeque<Msg>,
}

/// The connection is gone.
pub(crate) struct Broken;

impl Subscription {
    /// The subscription that was made on this connection.
    pub(crate) fn on(con: Connection, within: Duration) -> Subscription {
        Subscription { con, within, read_timeout: None, last: machine_now(), early: VecDeque::new() }
    }

    /// The next message, waited for until then; nothing after that or a pause.
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

    /// Tests the connection, if it was silent for long.
    pub(crate) fn test(&mut self) -> Result<(), Broken> {
        if since(self.last) < SILENCE {
            return Ok(());
        }
        self.bound(self.within)?;
        let mut pubsub = ManuallyDrop::new(self.con.as_pubsub());
        let answered = pubsub.ping::<Value>();
        // Messages that came before the answer are in `pubsub` now.
        let timeout = Duration::from_millis(1);
        pubsub.set_read_timeout(Some(timeout)).map_err(|_| Broken)?;
        while let Ok(message) = pubsub.get_message() {
            self.early.push_back(message);
        }
        self.read_timeout = Some(timeout);
        self.last = machine_now();
        answered.map_err(|_| Broken).map(drop)
    }

    /// Whether something answers, if only with an error.
    pub(crate) fn works(&mut self) -> bool {
        let answered = self.bound(self.within).is_ok();
        answered && !matches!(self.pubsub().ping::<Value>(), Err(error) if error.is_io_error())
    }

    /// Its drop would unsubscribe, which is one more permission, and wait for the reply; the connection is closed instead.
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

/// Whether nothing came in time; or this process was stopped and goes on, which interrupts a read that has a timeout, as
/// signal(7) says. In both cases the connection stands.
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
