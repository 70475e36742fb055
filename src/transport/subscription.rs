//! A connection on which messages come, in pauses short enough to look at other things too.

use redis::{Connection, Msg, PubSub, RedisError, Value};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the longest pause is.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// A connection that was silent for so long is tested: one that died quietly is silent too.
const SILENCE: Duration = Duration::from_secs(5);

pub(crate) struct Subscription<'a> {
    /// Its drop would unsubscribe, which is one more permission, and wait for the reply; the connection is closed instead.
    pubsub: ManuallyDrop<PubSub<'a>>,
    /// How long an answer may take.
    within: Duration,
    last: Instant,
}

/// The connection is gone.
pub(crate) struct Broken;

impl Subscription<'_> {
    /// To what this connection has subscribed to.
    pub(crate) fn on(con: &mut Connection, within: Duration) -> Subscription<'_> {
        Subscription {
            pubsub: ManuallyDrop::new(con.as_pubsub()),
            within,
            last: Instant::now(),
        }
    }

    /// The next message; nothing after a pause.
    pub(crate) fn next(&mut self) -> Result<Option<Msg>, Broken> {
        self.wait_for_at_most(TICK)?;
        match self.pubsub.get_message() {
            Ok(message) => {
                self.last = Instant::now();
                Ok(Some(message))
            }
            Err(error) if is_pause(&error) => {
                if self.last.elapsed() >= SILENCE {
                    self.wait_for_at_most(self.within)?;
                    self.pubsub.ping::<Value>().map_err(|_| Broken)?;
                    self.last = Instant::now();
                }
                Ok(None)
            }
            Err(_) => Err(Broken),
        }
    }

    /// Whether something answers, if only with an error.
    pub(crate) fn stands(&mut self) -> bool {
        !matches!(self.pubsub.ping::<Value>(), Err(error) if error.is_io_error())
    }

    fn wait_for_at_most(&self, time: Duration) -> Result<(), Broken> {
        let set = self.pubsub.set_read_timeout(Some(time));
        set.map_err(|_| Broken)
    }
}

/// Whether nothing came in time; or this process was stopped and goes on, which interrupts a read that has a timeout, as
/// signal(7) says. In both cases the connection stands.
fn is_pause(error: &RedisError) -> bool {
    let interrupted = || {
        let cause = std::error::Error::source(error)?
            .downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
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
