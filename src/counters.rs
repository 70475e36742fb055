//! What a gate counts, for whoever watches a program at work.

use crate::error::AcquireError;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often what happened since a gate was opened; its clones count together. Made by
/// [`Gate::counters`](crate::Gate::counters).
///
/// None of them ever decreases, so a metrics library takes each as a counter, and tells a process that was started again by
/// its beginning at zero. They are read one after the other, so a grant that is made meanwhile may show in one and not yet
/// in the next. The [guide](crate::guide::observability) has an example, and says what to be woken up for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Permits and guards that were handed out, whatever their weight: at once or after a wait. Of several semaphores that are
    /// acquired together each counts, also where it is given back because another one is not free in time. What is
    /// [adopted](crate::Semaphore::adopt) was granted before and does not count.
    pub granted: u64,
    /// Callers that were refused because of others: a `try_` that was [`Denied`](crate::errors::Denied) or
    /// [`Blocked`](crate::errors::Blocked), a wait in line whose time was over, and a full line. Not a failure of the server, not
    /// a wait that was cancelled, and not a wait for a latch.
    pub denied: u64,
    /// Of those denied, the ones that did not join the line because it was full; see
    /// [`max_waiting`](crate::Semaphore::max_waiting).
    pub line_full: u64,
    /// Of those granted, the ones that stood in line first.
    pub waited: u64,
    /// Permits that turned out to be lost while this process held them, once each: at a look at
    /// [`remaining`](crate::Permit::remaining) or [`is_lost`](crate::Permit::is_lost) after the lease had ended, at a refresh
    /// or renewal that was refused, or at a release that found nothing. A permit that is lost unnoticed, and then dropped
    /// while the server cannot be reached, does not count; nor does one whose release had to be repeated, since the first
    /// may have been carried out.
    pub lost: u64,
    /// Leases that the renewal thread renewed and the server confirmed, once for each permit and time. Those by
    /// [`refresh`](crate::Permit::refresh) do not count.
    pub renewed: u64,
    /// Connections made to a server in place of one that broke or did not answer in time, and subscriptions that
    /// were re-established.
    pub reconnects: u64,
}

/// The counters as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) granted: Count,
    pub(crate) denied: Count,
    pub(crate) line_full: Count,
    pub(crate) waited: Count,
    pub(crate) lost: Count,
    pub(crate) renewed: Count,
    pub(crate) reconnects: Count,
}

impl Counts {
    pub(crate) fn read(&self) -> Counters {
        // Those that are part of another one first, so that no part is greater than the whole.
        let waited = self.waited.read();
        let line_full = self.line_full.read();
        Counters {
            granted: self.granted.read(),
            denied: self.denied.read(),
            line_full,
            waited,
            lost: self.lost.read(),
            renewed: self.renewed.read(),
            reconnects: self.reconnects.read(),
        }
    }

    /// Counts a wait that ended since its time was over, or the line full; other errors do not count.
    pub(crate) fn refuse(&self, error: &AcquireError) {
        match error {
            AcquireError::TimedOut(_) => self.denied.add_one(),
            AcquireError::LineFull(_) => {
                self.denied.add_one();
                self.line_full.add_one();
            }
            _ => {}
        }
    }

    /// Counts a permit that is handed out.
    pub(crate) fn grant(&self, waited: bool) {
        self.granted.add_one();
        if waited {
            self.waited.add_one();
        }
    }
}

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
