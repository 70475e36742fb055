//! The latch.

use crate::errors::{CallError, WaitError};
use crate::semaphore::blocking;
use luagate::{Cancel, aio};
use std::fmt;
use std::time::Duration;

#[derive(Clone)]
pub struct CountDownLatch {
    aio: aio::CountDownLatch,
}

blocking! { CountDownLatch:
    count() -> Result<u32, CallError>;
    count_down() -> Result<u32, CallError>;
    count_down_as(id: &str) -> Result<u32, CallError>;
    delete() -> Result<bool, CallError>;
    wait() -> Result<(), WaitError>;
    wait_timeout(timeout: Duration) -> Result<(), WaitError>;
}

impl CountDownLatch {
    pub(crate) fn new(aio: aio::CountDownLatch) -> CountDownLatch {
        CountDownLatch { aio }
    }

    #[must_use]
    pub fn life(self, life: Duration) -> CountDownLatch {
        CountDownLatch::new(self.aio.life(life))
    }

    #[must_use]
    pub fn cancelled_by(self, cancel: &Cancel) -> CountDownLatch {
        CountDownLatch::new(self.aio.cancelled_by(cancel))
    }

    pub fn name(&self) -> &str {
        self.aio.name()
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.aio.fmt(f)
    }
}
