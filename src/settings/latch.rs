//! What a caller declares about a latch: its name, its count, and how long it is kept.

use crate::error::{Invalid, MOST};
use crate::protocol::keys::LatchKeys;
use crate::protocol::lease::LONGEST_MS;
use crate::wait::cancel::Cancel;
use std::fmt;
use std::time::Duration;

/// How long a latch is kept after its last call by default.
const LIFE: Duration = Duration::from_secs(86_400);

/// The settings of a latch. They are checked when the latch is used.
#[derive(Clone)]
pub(crate) struct LatchSettings {
    pub(crate) name: String,
    keys: Result<LatchKeys, Invalid>,
    pub(crate) count: u32,
    pub(crate) life: Duration,
    pub(crate) cancel: Option<Cancel>,
}

impl LatchSettings {
    pub(crate) fn new(prefix: &str, name: &str, count: u32) -> LatchSettings {
        LatchSettings { name: name.to_owned(), keys: LatchKeys::new(prefix, name), count, life: LIFE, cancel: None }
    }

    /// The keys and the life in ms, if all settings of this latch are valid.
    pub(crate) fn checked(&self) -> Result<(&LatchKeys, u64), Invalid> {
        let keys = self.keys.as_ref().map_err(Invalid::clone)?;
        if !(1..=MOST).contains(&self.count) {
            let why = format!("{} is out of range. Accepted: 1 to {MOST}", self.count);
            return Err(Invalid::new("count", why));
        }
        match u64::try_from(self.life.as_millis()) {
            Ok(ms) if (1..=LONGEST_MS).contains(&ms) => Ok((keys, ms)),
            _ => {
                let why = format!("{:?} is out of range. Accepted: 1 ms to 100 years", self.life);
                Err(Invalid::new("life", why))
            }
        }
    }
}

impl fmt::Debug for LatchSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountDownLatch")
            .field("name", &self.name)
            .field("count", &self.count)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

/// A timeout for waiting.
pub(crate) fn check_timeout(timeout: Duration) -> Result<(), Invalid> {
    if timeout.is_zero() {
        let why = "got 0. Accepted: more than 0. To read the state without waiting, use `count`";
        Err(Invalid::new("timeout", why))
    } else {
        Ok(())
    }
}
